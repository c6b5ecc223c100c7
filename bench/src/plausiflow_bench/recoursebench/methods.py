"""Methods in the form of RecourseBench, commit 083e2a6 of method/method_object.py (June 2026).

RecourseBench is a program and no package: run :func:`register_methods` in its directory, then its
configurations may name the methods ``plausiflow`` and ``ppcef``::

    python -c "import plausiflow_bench.recoursebench as r; r.register_methods(); import experiment; ..."

A method gets encoded rows and returns encoded rows, NaN for a row without a counterfactual. What may change,
and in which direction, comes from the mutability and actionability of the data set.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from plausiflow import PPCEF, Decreasing, Explainer, Immutable, Increasing
from plausiflow.constraints import Rule
from plausiflow_bench.recoursebench.encoded_groups import EncodedGroups

DIRECTIONS: dict[str, Callable[..., Rule]] = {
    "same-or-increase": Increasing,
    "same-or-decrease": Decreasing,
    "none": Immutable,
    "same": Immutable,
}
"""The rule for each actionability of RecourseBench; ``any`` has none."""


class _TargetModule(nn.Module):
    """The logits of a differentiable target model."""

    def __init__(self, target_model: Any) -> None:  # noqa: ANN401
        super().__init__()
        self._forward = target_model.forward

    def forward(self, x: Tensor) -> Tensor:
        """Return logits in the precision of the rows; the target model has single precision."""
        return torch.as_tensor(self._forward(x.float())).to(x)


class RecourseMethod:
    """What both methods share; a subclass also inherits from RecourseBench's ``MethodObject``."""

    name = "plausiflow"
    _desired_class: int | str | None
    _is_trained: bool

    def __init__(
        self,
        target_model: Any,  # noqa: ANN401
        seed: int | None = None,
        device: str = "cpu",
        desired_class: int | str | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        self._target_model, self._seed, self._device = target_model, seed, device.lower()
        self._desired_class, self._is_trained, self._need_grad = desired_class, False, False
        self._settings = settings
        if self._device != target_model._device:
            raise ValueError("`device` must be that of the target model; use the same in the configuration.")

    def fit(self, trainset: Any) -> None:  # noqa: ANN401
        """Learn from the training rows of RecourseBench."""
        if trainset is None:
            raise ValueError("`trainset` must hold training rows; got None.")
        features = trainset.get(target=False)
        self._groups = EncodedGroups.from_encoding(list(features.columns), _attribute(trainset, "encoding"))
        table = self._groups.to_table(features)
        decided = self._probabilities(table).argmax(axis=1)
        orders = {name: sorted(table[name].unique()) for name in self._groups.ordered}
        self._explainer = Explainer(
            self._model(),
            constraints=self._rules(trainset, list(table.columns)),
            orders=orders,
            random_state=self._seed or 0,
            **self._own_settings(),
        ).fit(table, decided)
        self._is_trained = True

    def get_counterfactuals(self, factuals: pd.DataFrame) -> pd.DataFrame:
        """Return counterfactuals of encoded rows, NaN for a row without one."""
        if not self._is_trained:
            raise RuntimeError("Method is not trained")
        table = self._groups.to_table(factuals)
        result = self._explainer.explain(table.reset_index(drop=True), self._target())
        answers = pd.DataFrame(np.nan, index=factuals.index, columns=factuals.columns, dtype=np.float64)
        found = result.best >= 0
        rows = self._groups.to_encoded(result.best_answers)
        answers.loc[found] = rows[list(factuals.columns)].to_numpy()
        already = (result.status["status"] == "already").to_numpy()
        answers.loc[already] = factuals[already].to_numpy(np.float64)
        return answers

    def _target(self) -> Any:  # noqa: ANN401
        """Return the target of a search: the number of the desired class, or the opposite of two."""
        if self._desired_class is None:
            return "opposite"
        return int(self._target_model.get_class_to_index()[self._desired_class])

    def _probabilities(self, table: pd.DataFrame) -> np.ndarray:
        rows = self._groups.to_encoded(table)
        found: Tensor = self._target_model.get_prediction(rows, proba=True)
        return found.detach().cpu().numpy().astype(np.float64)

    def _model(self) -> Any:  # noqa: ANN401
        """Return the model as an explainer takes it; single columns keep their gradients."""
        if self._groups.groups or not self._target_model._need_grad:
            return self._probabilities
        return _TargetModule(self._target_model)

    def _own_settings(self) -> dict[str, Any]:
        return self._settings

    def _rules(self, trainset: Any, names: list[str]) -> list[Rule]:  # noqa: ANN401
        """Return the rules for the columns of the table; a group takes those of its first column."""
        prefix = "encoded" if _attribute(trainset, "encoded_feature_mutability") else "raw"
        mutable = _attribute(trainset, f"{prefix}_feature_mutability")
        actionable = _attribute(trainset, f"{prefix}_feature_actionability")
        rules: dict[str, Rule] = {}
        for column in self._groups.columns:
            name = self._groups.source(column)
            kind = str(actionable.get(column, "any")).lower()
            if name in rules or name not in names:
                continue
            if not mutable.get(column, True):
                rules[name] = Immutable(name)
            elif kind in DIRECTIONS and not (kind.startswith("same-or") and self._is_nominal(name)):
                rules[name] = DIRECTIONS[kind](name)
        return list(rules.values())

    def _is_nominal(self, name: str) -> bool:
        return name in self._groups.groups and name not in self._groups.ordered


class PPCEFMethod(RecourseMethod):
    """PPCEF on the encoded columns of a differentiable model."""

    name = "ppcef"

    def fit(self, trainset: Any) -> None:  # noqa: ANN401
        """Learn from training rows without encoded categories, which PPCEF does not have."""
        encoding = {} if trainset is None else _attribute(trainset, "encoding")
        if not self._target_model._need_grad or any(len(own) > 1 for own in encoding.values()):
            raise ValueError(
                "`ppcef` needs a differentiable target model and numbers only. Use the method `plausiflow`."
            )
        super().fit(trainset)

    def _own_settings(self) -> dict[str, Any]:
        return {"method": PPCEF} | self._settings


def make_methods(base: type) -> list[type]:
    """Return the methods as subclasses of RecourseBench's ``MethodObject``."""
    return [
        type(own.__name__, (own, base), {"__doc__": own.__doc__}) for own in (RecourseMethod, PPCEFMethod)
    ]


def register_methods() -> list[type]:
    """Register the methods in RecourseBench, whose directory must be the current one or on the path."""
    base = import_module("method.method_object").MethodObject
    register = import_module("utils.registry").register
    return [register(made.name)(made) for made in make_methods(base)]  # type: ignore[attr-defined]


def _attribute(dataset: Any, name: str) -> dict[str, Any]:  # noqa: ANN401
    """Return an attribute of a data set; RecourseBench raises AttributeError for one that is not there."""
    try:
        return dict(dataset.attr(name) or {})
    except AttributeError:
        return {}
