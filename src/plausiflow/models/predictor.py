"""The user's model itself, asked about rows of the table: where there are no gradients, it is all there is.

A model is a fitted object with ``predict_proba``, ``decision_function`` or ``predict``, a booster of XGBoost
or LightGBM (neither is imported here), or any function of a table. It is given a copy of rows in original
units and dtypes, numbered anew, and its warnings are not shown. NumPy's random state is left as the model
leaves it: putting it back would hide a model that answers at random. Before it is believed, the model is
asked about training rows: twice, in another order, and about some of them alone.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import BaseEstimator, RegressorMixin, is_regressor
from torch import Tensor

from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.models.encoded import in_order
from plausiflow.models.sklearn.columns import Array, Fitted, Refused
from plausiflow.models.sklearn.comparison import Intake
from plausiflow.tables import plain

_ROWS = 256
_ALONE = 4
_EXTRA_CALLS = 64
_TOLERANCE = 1e-3
_BETWEEN_CALLS = 1e-9
_BETWEEN_BATCHES = 1e-6
_OWN_NAMES = {"catboost": "feature_names_", "xgboost": "feature_names", "lightgbm": "feature_name"}
"""Where models that do not follow scikit-learn keep the names of their columns; LightGBM writes no spaces."""


OutputKind: TypeAlias = Literal["probabilities", "scores", "labels", "values"]


class RaisedError(ModelError):
    """The user's model raised."""


@dataclass(frozen=True)
class _Call:
    """A function or a method of the user's, given what it takes of the table."""

    name: str
    function: Callable[[Any], object]
    intake: Intake
    method: str = ""

    def __call__(self, frame: pd.DataFrame) -> object:
        rows = self.intake.rows(frame)
        return self.function(np.array(rows) if self.intake.as_array else rows)


@dataclass(eq=False, kw_only=True, repr=False)
class Predictor:
    """The user's model itself, asked about rows of the table; every call is counted.

    Attributes:
        name: What it is called in messages.
        answers: What it answers with; ``scores`` are positive where it predicts the second of two outcomes.
        labels: The outcomes in the model's order; none for a regressor.
        respond: What is really called.
        calls: How often it was.
        rows: About how many rows.
    """

    name: str
    answers: OutputKind
    labels: tuple[Any, ...]
    respond: Callable[[pd.DataFrame], object]
    calls: int = 0
    rows: int = 0

    def outputs(self, frame: pd.DataFrame) -> Tensor:
        """What the model says of rows of the table.

        A batch that raises is halved, in up to 64 more calls, to tell the rows that raise from the others.

        Returns:
            Probabilities ``(n, k)``, double, which sum to one: a single one where the model answers with
            labels, the softmax of ``(0, score)`` where it answers with scores. Of a regressor its values,
            ``(n,)``. NaN, for the whole row, where the model has none: it raised, or the answer is no such.

        Raises:
            ModelError: The answer has a wrong shape.
        """
        shape = (len(frame), len(self.labels)) if self.labels else (len(frame),)
        found = torch.full(shape, torch.nan, dtype=torch.float64)
        waiting = deque([(0, len(frame))] if len(frame) else [])
        last = self.calls + 1 + _EXTRA_CALLS
        while waiting and self.calls < last:
            start, stop = waiting.popleft()
            try:
                found[start:stop] = self._outputs(frame.iloc[start:stop])
            except RaisedError:
                middle = (start + stop) // 2
                waiting.extend([(start, middle), (middle, stop)] if stop - start > 1 else [])
        return found

    def __repr__(self) -> str:
        kind = f"{len(self.labels)} classes; {self.answers}" if self.labels else self.answers
        return f"Predictor({self.name}, {kind})"

    @property
    def way(self) -> tuple[str, Intake]:
        """By which method it is asked, none where it is itself called, and what it is given."""
        assert isinstance(self.respond, _Call)
        return self.respond.method, self.respond.intake

    @property
    def _called(self) -> str:
        return self.respond.name if isinstance(self.respond, _Call) else self.name

    @property
    def _expected(self) -> str:
        names = ", ".join(map(repr, self.labels[:10]))
        if self.answers == "labels":
            return f"labels of shape (n,), out of {names}"
        if self.answers == "probabilities":
            also = f", or (n,) for that of {self.labels[1]!r}" if len(self.labels) == 2 else ""
            return f"probabilities of shape (n, {len(self.labels)}), in the order {names}{also}"
        return "finite numbers of shape (n,)"

    def _answer(self, frame: pd.DataFrame) -> object:
        """What the model returns for rows, or an error of ours."""
        self.calls, self.rows = self.calls + 1, self.rows + len(frame)
        given = frame.copy()
        given.index = pd.RangeIndex(len(given))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return self.respond(given)
            except Exception as error:
                text = " ".join(str(error).split()).rstrip(".")
                columns = ", ".join(f"{name} {dtype}" for name, dtype in frame.dtypes.iloc[:10].items())
                raise RaisedError(
                    f"{self._called} raised {type(error).__name__} for rows of shape {frame.shape}, first "
                    f"columns {columns}: {text}. It must be fitted, and take any number of rows as they are "
                    "in the training table; where it needs them prepared, give a function: "
                    "`lambda frame: model.predict_proba(prepare(frame))`."
                ) from error

    def _numbers(self, answer: object, n: int) -> Array:
        """The answer in numbers ``(n, k)``; ``(n, 1)`` where it is one number for each row."""
        cells, k = _cells(answer, n, self.labels), len(self.labels)
        widths = {k, 1 if k == 2 else k} if self.answers == "probabilities" else {1}
        if cells is None or len(cells) != n or cells.shape[1] not in widths:
            shape = getattr(answer, "shape", None)
            came = f"{type(answer).__name__}{'' if shape is None else f' of shape {tuple(shape)}'}"
            if isinstance(answer, pd.DataFrame):
                came += f" with columns {', '.join(map(repr, answer.columns[:10]))}"
            raise ModelError(
                f"{self._called} must answer n = {n} rows with {self._expected}; got {came}. Give a function "
                "of the rows that returns this."
            )
        # A label 0 or 1 is the probability of 1 as well, and is so still where a sure model becomes unsure.
        if self.answers == "labels" and self.labels != (0, 1):
            return np.vstack([np.eye(k), np.full(k, np.nan)])[_codes(cells, self.labels)]
        numbers = pd.to_numeric(pd.Series(cells.ravel()), errors="coerce")
        return numbers.to_numpy(np.float64, na_value=np.nan, copy=True).reshape(cells.shape)

    def _outputs(self, frame: pd.DataFrame, *, strict: bool = False) -> Tensor:
        """The outputs of one call; where this is strict, every row must have one."""
        n = len(frame)
        numbers = self._numbers(self._answer(frame), n)
        finite = np.isfinite(numbers).all(axis=1)
        wrong = {"are none of the outcomes" if self.answers == "labels" else "are not finite": ~finite}
        if self.answers in ("probabilities", "labels"):
            outside = (numbers < -_TOLERANCE) | (numbers > 1 + _TOLERANCE)
            wrong["are outside [0, 1]"] = finite & outside.any(axis=1)
            if numbers.shape[1] > 1:
                wrong["do not sum to one"] = finite & (abs(numbers.sum(axis=1) - 1) > _TOLERANCE)
        bad = np.logical_or.reduce(list(wrong.values()))
        if strict and bad.any():
            faults = ", ".join(f"{mask.sum()} {fault}" for fault, mask in wrong.items() if mask.any())
            raise ModelError(
                f"{self._called} must answer with {self._expected}; of its answers for {n} training rows "
                f"{faults}. Ask it by hand, or give a function that returns this."
            )
        numbers[bad] = np.nan
        made = torch.from_numpy(numbers)
        if not self.labels:
            return made[:, 0]
        if self.answers == "scores":
            return torch.cat([torch.zeros_like(made), made], dim=1).softmax(dim=1)
        made = (torch.cat([1 - made, made], dim=1) if made.shape[1] == 1 else made).clamp(0, 1)
        return made / made.sum(dim=1, keepdim=True)

    def _check(self, rows: pd.DataFrame) -> None:
        """Raise unless the model has an answer for every row, and stays with it."""
        first = self._outputs(rows, strict=True)
        changed = non_deterministic(first, self._outputs(rows, strict=True), tolerance=_BETWEEN_CALLS)
        if changed.any():
            raise ModelError(
                f"{self._called} changes its answers between calls: those for {int(changed.sum())} of "
                f"{len(rows)} training rows. Fix its random state, or put it into evaluation mode."
            )
        changed = non_deterministic(first, self._outputs(rows.iloc[::-1], strict=True).flip(0))
        order = (first @ torch.arange(len(self.labels)).double() if self.labels else first).argsort()
        for row in order[torch.linspace(0, len(rows) - 1, _ALONE).long()].tolist():
            alone = self._outputs(rows.iloc[[row]], strict=True)
            changed[row] |= non_deterministic(first[[row]], alone)[0]
        if changed.any():
            raise ModelError(
                f"{self._called} depends on the rows asked with it: alone, or in another order, "
                f"{int(changed.sum())} training rows have other answers. Let it treat every row on its own, "
                "without means, ranks or an order of the rows that it is given."
            )


def asked(model: object, frame: pd.DataFrame, outcomes: tuple[Any, ...] | None) -> Predictor:
    """The model as one that is asked about rows of the table.

    Args:
        model: A fitted classifier or regressor; a booster; or a function of the table's rows that returns
            probabilities in the order of the outcomes or in columns of their names, the probability of the
            second of two outcomes, labels, or the numbers of a regression. A model without ``classes_`` has
            the outcomes in their sorted order.
        frame: Training rows, as the model is given them.
        outcomes: The sorted labels of ``y``; nothing where ``y`` is a number.

    Raises:
        InvalidInputError: This is no model of such a table, or of such outcomes.
        ModelError: Predictor about training rows it raises, has no answer, or does not stay with it.

    Example:
        >>> frame = pd.DataFrame({"age": [31, 54, 47, 25]})
        >>> def score(rows):
        ...     return rows["age"] / 100
        >>> model = asked(score, frame, ("no", "yes"))
        >>> model
        Predictor(a function `score`, 2 classes; probabilities)
        >>> model.outputs(frame)[0]
        tensor([0.6900, 0.3100], dtype=torch.float64)
    """
    if isinstance(model, type) or not (_has_methods(model) or callable(model)):
        came = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise InvalidInputError(
            "`model` must be a fitted model with `predict_proba` or `predict`, or a function of the table's "
            f"rows; got {came}. Fit it, or give `lambda frame: ...`."
        )
    if not len(frame):
        raise InvalidInputError("`frame` must hold training rows to ask the model about; it has none.")
    rows = frame.iloc[np.linspace(0, len(frame) - 1, min(len(frame), _ROWS)).astype(np.int64)]
    made = _made(model, rows, _labels(model, outcomes))
    made._check(rows)
    made.calls = made.rows = 0
    return made


def asked_so(
    model: Fitted, method: str, intake: Intake, answers: OutputKind, labels: tuple[Any, ...]
) -> Predictor:
    """A model that is asked in a way that is known: by a method, or by none itself; nothing is tried."""
    name = _name(model)
    called, function = (f"`{name}.{method}`", getattr(model, method)) if method else (name, model)
    return Predictor(
        name=name, answers=answers, labels=labels, respond=_Call(called, function, intake, method)
    )


def non_deterministic(first: Tensor, again: Tensor, *, tolerance: float = _BETWEEN_BATCHES) -> Tensor:
    """Which rows have other outputs when asked again, bool, shape ``(n,)``; one NaN is as good as another.

    Numbers above one are compared by their ratio. The tolerance is for rows that were asked in other batches,
    of models in single precision.
    """
    same = (first - again).abs() <= tolerance * first.abs().clamp_min(1)
    same |= first.isnan() & again.isnan()
    return ~same.reshape(len(same), -1).all(dim=1) if len(same) else same.new_zeros(0)


def _made(model: Fitted, rows: pd.DataFrame, labels: tuple[Any, ...]) -> Predictor:
    """The model, asked for the best that it has; whether that is labels, its answers for the rows tell."""
    method = "predict" if _has_methods(model) else ""
    if _name(model) == "xgboost.Booster":
        method = "inplace_predict"
    elif labels and hasattr(model, "predict_proba"):
        return _taking(model, "predict_proba", rows, labels)
    made = _taking(model, method, rows, labels)
    cells = _cells(made._answer(rows), len(rows), labels) if labels else None
    if cells is None or cells.shape[1] != 1:
        return made
    if any(isinstance(cell, str) for cell in cells[:, 0].tolist()) or (_codes(cells, labels) >= 0).all():
        made.answers = "labels"
        if len(labels) == 2 and method and hasattr(model, "decision_function"):
            scored = replace(_taking(model, "decision_function", rows, labels), answers="scores")
            with suppress(ModelError):  # scores of another shape
                if ((scored.outputs(rows)[:, 1] - 0.5) * (made.outputs(rows)[:, 1] - 0.5) >= 0).all():
                    return scored
    return made


def _taking(model: Fitted, method: str, rows: pd.DataFrame, labels: tuple[Any, ...]) -> Predictor:
    """The model, asked by a method or by itself, given its columns in the first way that it takes them."""
    names = tuple(rows.columns)
    intakes = _intakes(model, names) if method else [Intake(names, as_array=False)]
    answers: OutputKind = "probabilities" if labels else "values"
    ways = [asked_so(model, method, intake, answers, labels) for intake in intakes]
    for way in ways:
        with suppress(RaisedError):
            way._answer(rows)
            return way
    return ways[0]


def _intakes(model: Fitted, names: tuple[str, ...]) -> list[Intake]:
    """What a model takes of a table, in the order to try: columns that it names, else all, also as an array.

    The table comes before the array: a model inside another may know names that the outer one does not.
    """
    inner = getattr(model, "best_estimator_", model)
    packages = {base.__module__.partition(".")[0] for base in type(inner).__mro__}
    found = getattr(inner, "feature_names_in_", None)
    for own in (own for package, own in _OWN_NAMES.items() if found is None and package in packages):
        found = getattr(inner, own, None)
    wanted = [] if found is None else list(map(str, found() if callable(found) else found))
    numbered = [[f"{start}{i}" for i in range(len(wanted))] for start in ("", "Column_")]
    try:
        if wanted and (wanted not in numbered or set(wanted) <= set(names)):
            spelt = {name.replace(" ", "_"): name for name in names} | {name: name for name in names}
            return [Intake.of(SimpleNamespace(feature_names_in_=[spelt.get(n, n) for n in wanted]), names)]
        if getattr(model, "n_features_in_", None) is not None:
            Intake.of(model, names)
    except Refused as refusal:
        raise InvalidInputError(f"`model` must be fitted on columns of the table: {refusal}.") from refusal
    return [Intake(names, as_array=False), Intake(names, as_array=True)]


def _labels(model: Fitted, outcomes: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """The outcomes in the model's order, written as in ``y``; none for a regression."""
    classes = getattr(model, "classes_", None)
    order = () if classes is None else tuple(map(plain, classes))
    if outcomes is None:
        if order or hasattr(model, "predict_proba"):
            raise InvalidInputError(
                f"`model` must predict a number, for `y` holds numbers; {_name(model)} is a classifier. Give "
                "a regressor, or as `y` the outcomes that it was trained on."
            )
        return ()
    regressor = is_regressor(model) if isinstance(model, BaseEstimator) else isinstance(model, RegressorMixin)
    if regressor or getattr(model, "_estimator_type", None) == "regressor":
        raise InvalidInputError(
            f"`model` must decide between the outcomes of `y`, {', '.join(map(repr, outcomes[:10]))}; "
            f"{_name(model)} is a regressor. Give a classifier, or as `y` the numbers that it was trained on."
        )
    if any(isinstance(label, np.ndarray) for label in order):
        raise InvalidInputError(
            f"`model` must predict one outcome; {_name(model)} predicts {len(order)}. Give a function of one "
            "of them: `lambda frame: model.predict_proba(frame)[0]`."
        )
    written = {outcome: outcome for outcome in outcomes}  # a label 1 may be True in `y`
    known = in_order(outcomes, torch.arange(len(outcomes)), order or None)[0]
    return tuple(written.get(label, label) for label in known)


def _has_methods(model: object) -> bool:
    return hasattr(model, "predict") or hasattr(model, "predict_proba")


def _name(model: object) -> str:
    kind = type(model)
    if not _has_methods(model):
        return f"a function `{getattr(model, '__name__', kind.__name__)}`"
    package = kind.__module__.partition(".")[0]
    return f"{package}.{kind.__name__}" if kind.__name__ == "Booster" else kind.__name__


def _cells(answer: object, n: int, labels: tuple[Any, ...]) -> npt.NDArray[Any] | None:
    """An answer for n rows in columns, named ones in the order of the labels; nothing where it has none."""
    if isinstance(answer, Tensor):
        answer = (answer.double() if answer.is_floating_point() else answer).detach().cpu().numpy()
    if isinstance(answer, pd.DataFrame):
        columns = list(map(plain, answer.columns))
        if set(columns) == set(labels) and len(columns) == len(labels):
            answer = answer.iloc[:, [columns.index(label) for label in labels]]
        elif len(columns) > 1 and columns != list(range(len(columns))):
            return None
    try:
        cells = np.asarray(answer)
    except (TypeError, ValueError):
        return None
    if cells.ndim < 2:
        cells = cells.reshape(1, -1) if n == 1 else cells.reshape(-1, 1)
    return cells if cells.ndim == 2 else None


def _codes(cells: npt.NDArray[Any], labels: tuple[Any, ...]) -> npt.NDArray[np.int64]:
    """The places of the cells of one column among labels; -1 for one that is none."""
    place = {label: i for i, label in enumerate(labels)}
    codes = [place.get(cell, -1) if isinstance(cell, Hashable) else -1 for cell in cells[:, 0].tolist()]
    return np.array(codes, dtype=np.int64)
