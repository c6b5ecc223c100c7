"""How much a fit may cost: fewer epochs and rows for less effort."""

import pandas as pd
import pytest

from plausiflow import Explainer, LinearClassifier
from plausiflow.errors import InvalidInputError
from plausiflow.search import EFFORTS


def table():
    x = pd.DataFrame({"income": [37 * i % 41 for i in range(160)], "debt": [i % 7 for i in range(160)]})
    return x, (x["income"] > 20).map({True: "granted", False: "rejected"})


@pytest.mark.filterwarnings("ignore::plausiflow.densities.PlausibilityWarning")
@pytest.mark.parametrize("effort", ["quick", pytest.param("standard", marks=pytest.mark.slow)])
def test_every_effort_gives_an_explainer_that_finds_answers(effort):
    x, y = table()
    explainer = Explainer(LinearClassifier(), judges=1).fit(x, y, effort=effort)
    assert explainer.engine_.plausibility.training == EFFORTS[effort].training
    assert explainer.judges_.training == EFFORTS[effort].training
    assert explainer.explain(x.iloc[:6]).is_found.all()


def test_a_setting_that_changes_after_fit_keeps_the_effort():
    x, y = table()
    explainer = Explainer(LinearClassifier(), judges=0, confidence=None).fit(x, y, effort="quick")
    explainer.plausibility = 0.3
    explainer.explain(x.iloc[:2])
    assert explainer.fitted_with_.context.settings.effort == "quick"


def test_more_effort_costs_more():
    quick, standard, thorough = (EFFORTS[name] for name in ("quick", "standard", "thorough"))
    assert quick.training.epochs < standard.training.epochs < thorough.training.epochs
    assert quick.calibration_rows < standard.calibration_rows < thorough.calibration_rows


def test_an_unknown_effort_is_an_error_that_names_the_known_ones():
    x, y = table()
    with pytest.raises(InvalidInputError, match="'quick', 'standard', 'thorough'; got 'much'"):
        Explainer(LinearClassifier()).fit(x, y, effort="much")
