"""Tolerance factors: jurors raise them where they accept too few answers."""

from dataclasses import dataclass, replace

import pandas as pd
import pytest
import torch

from plausiflow.core import DurableCriterion, Targets
from plausiflow.search.durability_fit import _checked, _Found

pytestmark = pytest.mark.filterwarnings("ignore:Counterfactuals may not last")


@dataclass(frozen=True)
class FactorsAsDurability:
    """Tolerance factors; jurors accept answers for the first class only if its factor has been raised."""

    criterion: DurableCriterion
    level: float = 0.9

    def engine(self, _):
        return self.criterion.factors

    def with_factors(self, factors):
        return replace(self, criterion=self.criterion.with_factors(factors))

    def lasting(self, x, _, targets):
        return torch.where((targets.y == 0) & (x[:, 0] < 2.5), 0.9, 1.0)


@dataclass(frozen=True)
class FactorsAsAnswers:
    """A search whose answers are the factors it was given; few rows have an answer at large ones."""

    y: torch.Tensor
    most: float
    engine: object = None

    def search(self, factors, which):
        kept = which[:3] if max(factors) > self.most else which
        own = self.y[kept]
        x = torch.tensor(factors, dtype=torch.float64)[own][:, None]
        return _Found(kept, x, x[:, 0], pd.DataFrame(index=range(len(kept))), Targets(own))


@pytest.mark.parametrize(("most", "expected"), [(9.0, 2 * 1.15**2), (2.4, 2 * 1.15)])
def test_jurors_raise_the_factor_of_an_outcome_while_there_are_answers_to_judge(most, expected):
    criterion = DurableCriterion(n_classes=2, guides=6, factors=(2.0, 2.0), variances=(1.0, 1.0))
    trial = FactorsAsAnswers(torch.arange(20) % 2, most)
    durable, answers = _checked(trial, FactorsAsDurability(criterion), ("no", "yes"))
    assert durable.criterion.factors == pytest.approx((expected, 2.0))
    assert [len(found.rows) for found in answers] == [10, 10]
    assert float(answers[0].x[0]) == pytest.approx(expected)
