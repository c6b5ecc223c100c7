"""scikit-learn's own tools handle an explainer: clones, parameters, tags, and whether it is fitted."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, ParameterGrid
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from plausiflow import (
    GMM,
    KDE,
    NODE,
    ConditionalFlow,
    Explainer,
    Immutable,
    LinearClassifier,
    MLPClassifier,
    Thresholded,
    load_table,
)
from plausiflow.errors import InvalidInputError, NotFittedError

NAMES = ["age", "income", "debt_ratio", "credit_score"]


@pytest.fixture(scope="module")
def table():
    train, _ = load_table("loans").split(200, 10)
    return train.x[NAMES], train.y


@pytest.fixture(scope="module")
def model(table):
    return LogisticRegression(max_iter=5000).fit(*table)


def settings(**more):
    return {"confidence": None, "judges": 0, "constraints": [Immutable("age")]} | more


def test_a_clone_has_the_same_settings_and_the_same_model_and_is_not_fitted(table, model):
    explainer = Explainer(model, **settings(plausibility=0, random_state=np.int64(3))).fit(
        *table, effort="quick"
    )
    copied = clone(explainer)
    assert copied.model is model
    assert copied.engine_ is None
    for name, value in explainer.get_params(deep=False).items():
        if name not in ("solver", "constraints"):
            assert getattr(copied, name) == value or getattr(copied, name) is value
    again = copied.fit(*table, effort="quick")
    rows = table[0].iloc[:20]
    pd.testing.assert_frame_equal(
        again.explain(rows, "granted").counterfactuals, explainer.explain(rows, "granted").counterfactuals
    )


def test_a_clone_does_not_share_what_can_be_changed(model):
    explainer = Explainer(model, weights={"income": 2.0})
    clone(explainer).weights["income"] = 5.0
    assert explainer.weights == {"income": 2.0}


def test_a_search_over_settings_finds_cheaper_answers_with_less_plausibility(table, model):
    x, y = table
    base, costs = Explainer(model, **settings()), {}
    for params in ParameterGrid({"plausibility": [0.0, 0.8]}):
        per_fold = []
        for train, test in KFold(2).split(x):
            explainer = clone(base).set_params(**params).fit(x.iloc[train], y.iloc[train], effort="quick")
            found = explainer.explain(x.iloc[test[:20]], "granted")
            per_fold.append(found.figures["cost"].mean())
        costs[params["plausibility"]] = np.mean(per_fold)
    assert costs[0.0] < costs[0.8]
    assert base.engine_ is None


def test_parameters_are_those_of_the_constructor_and_of_the_model(model):
    explainer = Explainer(model, max_extra_cost=0.1)
    assert Explainer(**explainer.get_params(deep=False)).max_extra_cost == 0.1
    assert explainer.get_params()["model__C"] == model.C
    assert "model__C" not in explainer.get_params(deep=False)
    own = LogisticRegression()
    assert Explainer(own).set_params(model__C=0.5, margin=0.1).margin == 0.1
    assert own.C == 0.5


def test_an_unknown_parameter_is_refused_with_the_known_ones(model):
    with pytest.raises(
        InvalidInputError, match=r"takes settings of an explainer; got depth\. Choose from model"
    ):
        Explainer(model).set_params(depth=3)


def test_nothing_is_checked_or_changed_before_fit(table, model):
    given = {"plausibility": 1, "random_state": np.int64(4), "margin": "wide"}
    explainer = Explainer(model, **given)
    assert all(getattr(explainer, name) is value for name, value in given.items())
    with pytest.raises(InvalidInputError, match=r"`margin` must be in \[0, 0.5\); got 'wide'"):
        explainer.fit(*table)
    assert explainer.engine_ is None


def test_scikit_learn_knows_whether_it_is_fitted_and_on_what(table, model):
    explainer = Explainer(model, **settings())
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(explainer)
    assert not hasattr(explainer, "n_features_in_")
    with pytest.raises(NotFittedError, match="known after `fit"):
        explainer.feature_names_in_  # noqa: B018
    explainer.fit(*table, effort="quick")
    check_is_fitted(explainer)
    assert explainer.feature_names_in_.tolist() == NAMES
    assert explainer.n_features_in_ == len(NAMES)


def test_the_tags_are_those_of_a_table_with_categories_and_missing_values():
    tags = get_tags(Explainer(LinearClassifier()))
    assert tags.estimator_type is None
    assert tags.input_tags.categorical
    assert tags.input_tags.allow_nan
    assert not tags.target_tags.required


@pytest.mark.parametrize(
    "fitted",
    [
        LinearClassifier(random_state=3),
        MLPClassifier(hidden=(4,)),
        NODE(n_trees=4),
        KDE(bandwidth=0.3),
        GMM(components=2),
        ConditionalFlow(hidden=(8,), transforms=1),
        Thresholded(density=KDE(bandwidth=0.3)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_classifiers_and_densities_are_cloned_with_their_settings(fitted):
    copied = clone(fitted)
    assert type(copied) is type(fitted)
    assert copied is not fitted
    names = fitted.get_params(deep=False)
    assert type(fitted)(**names).get_params(deep=False).keys() == names.keys()
    assert repr(copied) == repr(fitted)
    with pytest.raises(InvalidInputError, match=rf"takes settings of {type(fitted).__name__}; got colour"):
        copied.set_params(colour="red")


def test_a_clone_of_a_fitted_density_is_not_fitted_and_learns_the_same():
    x = torch.rand(80, 2)
    y = (x[:, 0] > 0.5).long()
    density = GMM(components=2, random_state=1).fit(x, y)
    copied = clone(density)
    with pytest.raises(NotFittedError):
        copied.log_prob(x, y)
    torch.testing.assert_close(copied.fit(x, y).log_prob(x, y), density.log_prob(x, y))


def test_a_search_over_the_settings_of_a_density_inside_another():
    base = Thresholded(density=KDE(bandwidth=0.3))
    assert base.get_params()["density__bandwidth"] == 0.3
    for params in ParameterGrid({"density__bandwidth": [0.1, 0.5]}):
        changed = clone(base).set_params(**params)
        assert changed.density.bandwidth == params["density__bandwidth"]
    assert base.density.bandwidth == 0.3
