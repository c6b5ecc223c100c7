"""Methods for RecourseBench, tested against stand-ins with the signatures of its base classes.

RecourseBench is a program on GitHub and no package, so it is not installed here. The stand-ins have what its
``MethodObject``, ``ModelObject`` and ``DatasetObject`` document (commit 083e2a6, June 2026).
"""

import sys
import types
from abc import ABC, abstractmethod

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow_bench.recoursebench import EncodedGroups, make_methods, register_methods

NUMBERS = ["age", "income"]
GROUPS = {"job": [f"job_cat_{i}" for i in range(3)], "grade": [f"grade_therm_{i}" for i in range(4)]}
QUICK = {"confidence": None, "judges": 0, "plausibility": 0.1}


class MethodObject(ABC):
    """Its abstract methods, and what `predict` checks."""

    _desired_class = None
    _is_trained = False

    @abstractmethod
    def __init__(self, target_model, seed=None, device="cpu", desired_class=None, **kwargs): ...

    @abstractmethod
    def fit(self, trainset): ...

    @abstractmethod
    def get_counterfactuals(self, factuals): ...

    def predict(self, testset, batch_size=20):
        factuals, batches = testset.get(target=False), []
        for start in range(0, len(factuals), batch_size):
            batch = factuals.iloc[start : start + batch_size]
            found = self.get_counterfactuals(batch)
            assert found.shape == batch.shape
            assert set(found.columns) == set(batch.columns)
            batches.append(found.reindex(index=batch.index, columns=batch.columns))
        return pd.concat(batches)


class Dataset:
    def __init__(self, frame, y, **attributes):
        self.frame, self.y, self.attributes = frame, y, attributes

    def get(self, target=False):
        return self.y.to_frame("y") if target else self.frame.copy()

    def attr(self, name):
        if name not in self.attributes:
            raise AttributeError(name)
        return self.attributes[name]


class Model:
    """A linear model of the columns, with two classes."""

    _device = "cpu"

    def __init__(self, weights, differentiable=True):
        self.weights, self._need_grad = torch.tensor(weights, dtype=torch.float32), differentiable

    def forward(self, x):
        score = (x - 0.5) @ self.weights
        return torch.stack([-score, score], dim=1)

    def get_prediction(self, rows, proba=True):
        logits = self.forward(torch.tensor(rows.to_numpy(), dtype=torch.float32))
        return logits.softmax(dim=1) if proba else logits

    def get_class_to_index(self):
        return {"no": 0, "yes": 1}


def numbers(n, seed=0):
    random = np.random.default_rng(seed)
    return pd.DataFrame(random.random((n, 2)).round(3), columns=NUMBERS, index=range(100, 100 + n))


def mixed(n, seed=0):
    random, frame = np.random.default_rng(seed), numbers(n, seed)
    job, grade = random.integers(0, 3, n), random.integers(0, 4, n)
    for i, column in enumerate(GROUPS["job"]):
        frame[column] = (job == i).astype(float)
    for i, column in enumerate(GROUPS["grade"]):
        frame[column] = (grade >= i).astype(float)
    return frame


def dataset(frame, **attributes):
    return Dataset(frame, pd.Series(0, index=frame.index), **attributes)


def decided(model, rows):
    return model.get_prediction(rows).argmax(dim=1).numpy()


@pytest.fixture(scope="module")
def methods():
    return {made.name: made for made in make_methods(MethodObject)}


@pytest.mark.parametrize("name", ["plausiflow", "ppcef"])
@pytest.mark.parametrize("desired", [None, "yes"])
def test_counterfactuals_of_numbers_flip_the_model_and_keep_the_form(methods, name, desired):
    model = Model([3.0, 5.0])
    method = methods[name](model, seed=1, desired_class=desired, **QUICK)
    with pytest.raises(RuntimeError, match="not trained"):
        method.get_counterfactuals(numbers(2))
    method.fit(dataset(numbers(200)))
    factuals = numbers(24, seed=5)
    found = method.predict(dataset(factuals), batch_size=10)
    assert found.index.equals(factuals.index)
    there = found.notna().all(axis=1)
    assert there.mean() > 0.8
    assert (found.isna().all(axis=1) | there).all()
    wanted = np.ones(len(factuals)) if desired else 1 - decided(model, factuals)
    assert (decided(model, found[there]) == wanted[there]).all()


def test_encoded_categories_stay_codes_and_rules_are_obeyed(methods):
    model = Model([0.5, 3.0, -2.0, 0.0, 2.0, 0.0, 0.5, 0.5, 0.5])
    frame = mixed(300)
    columns = list(frame.columns)
    attributes = {
        "encoding": GROUPS | {"age": ["age"]},
        "encoded_feature_mutability": {column: column != "age" for column in columns},
        "encoded_feature_actionability": {
            column: "same-or-increase" if "grade" in column else "any" for column in columns
        },
    }
    method = methods["plausiflow"](model, desired_class="yes", **QUICK)
    method.fit(dataset(frame, **attributes))
    factuals = mixed(40, seed=3)
    factuals = factuals[decided(model, factuals) == 0]
    found = method.predict(dataset(factuals)).dropna()
    assert len(found) > 0.7 * len(factuals)
    assert (decided(model, found) == 1).all()
    before = factuals.loc[found.index]
    assert (found["age"] == before["age"]).all()
    assert (found[GROUPS["job"]].sum(axis=1) == 1).all()
    grades = found[GROUPS["grade"]].to_numpy()
    assert (np.diff(grades, axis=1) <= 0).all()
    assert (grades.sum(axis=1) >= before[GROUPS["grade"]].sum(axis=1)).all()
    assert (found[GROUPS["job"]].to_numpy() != before[GROUPS["job"]].to_numpy()).any()


def test_groups_become_columns_and_come_back():
    frame = mixed(50)
    groups = EncodedGroups.from_encoding(list(frame.columns), GROUPS | {"age": ["age"], "other": ["x", "y"]})
    table = groups.to_table(frame)
    assert list(table.columns) == [*NUMBERS, "job", "grade"]
    assert groups.ordered == ["grade"]
    pd.testing.assert_frame_equal(groups.to_encoded(table), frame)


def test_ppcef_refuses_what_it_does_not_have(methods):
    with pytest.raises(ValueError, match="differentiable target model and numbers only"):
        methods["ppcef"](Model([1.0, 1.0], differentiable=False)).fit(dataset(numbers(50)))
    with pytest.raises(ValueError, match="numbers only"):
        methods["ppcef"](Model([1.0] * 9)).fit(dataset(mixed(50), encoding=GROUPS))


def test_a_method_on_another_device_is_refused(methods):
    with pytest.raises(ValueError, match="must be that of the target model"):
        methods["plausiflow"](Model([1.0, 1.0]), device="cuda")


def test_they_are_registered_by_name(monkeypatch):
    registry = {}
    for name, content in {
        "method": {},
        "method.method_object": {"MethodObject": MethodObject},
        "utils": {},
        "utils.registry": {"register": lambda name: lambda made: registry.setdefault(name, made)},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    register_methods()
    assert set(registry) == {"plausiflow", "ppcef"}
    assert all(issubclass(made, MethodObject) for made in registry.values())
