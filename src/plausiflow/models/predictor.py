"""The user's own model, called on rows of the table.

A model is a fitted object with ``predict_proba``, ``decision_function`` or ``predict``, a booster of XGBoost
or LightGBM (neither is imported here), or any function of a table. It gets a copy of the rows in original
units and dtypes, with a range index. Its warnings are suppressed. NumPy's random state is left as the model
leaves it; restoring it would hide a model that predicts at random. :func:`make_predictor` checks the model on
training rows first: it calls it twice, with the rows in another order, and with some rows alone.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, RegressorMixin, is_regressor
from torch import Tensor

from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.models.model_calls import add_model_call
from plausiflow.models.model_results import as_columns, label_codes
from plausiflow.models.outcomes import reorder_classes
from plausiflow.models.sklearn.columns import Array, Fitted, InputFormat, UnsupportedModelError
from plausiflow.tables import PANDAS, TableFormat, to_python

_CHECKED_ROWS = 256
_SINGLE_ROWS = 4
_EXTRA_CALLS = 64
_TOLERANCE = 1e-3
_TOLERANCE_BETWEEN_CALLS = 1e-9
_TOLERANCE_BETWEEN_BATCHES = 1e-6
_NAME_ATTRIBUTES = {"catboost": "feature_names_", "xgboost": "feature_names", "lightgbm": "feature_name"}
"""Attributes with the column names of models that do not follow scikit-learn; LightGBM replaces spaces."""

OutputKind: TypeAlias = Literal["probabilities", "scores", "labels", "values"]


PROBE_FAILED = "The model fails for a row that it predicted before, so the rows are not at fault."


class ModelCallError(ModelError):
    """The user's model raised an exception."""


@dataclass(eq=False, repr=False)
class Predictor:
    """The user's own model on rows of the table."""

    name: str  # Name in messages.
    output_kind: OutputKind  # A single score is positive where it predicts the second outcome.
    labels: tuple[Any, ...]  # Class labels in the model's order; empty for a regressor.
    function: Callable[[Any], object]
    input_format: InputFormat | None = None  # The columns that it takes; None for the whole table.
    method: str = ""  # Name of the method; empty if the model itself is called.
    probe: pd.DataFrame | None = None  # A row that the model predicted before; see :meth:`outputs`.

    def outputs(self, frame: pd.DataFrame) -> Tensor:
        """Return the model's probabilities ``(n, k)`` or values ``(n,)`` for rows of the table, double.

        Labels become one-hot probabilities, scores their softmax, a single one that of ``(0, score)``. A row
        is NaN where the model raises or returns an invalid prediction: a batch that fails is halved, with up
        to 64 more calls, to find these rows.

        Raises:
            ModelError: The model fails for the probe, too: this is no fault of the rows. Without a probe, it
                returned something that is not a prediction.
        """
        shape = (len(frame), len(self.labels)) if self.labels else (len(frame),)
        outputs = torch.full(shape, torch.nan, dtype=torch.float64)
        pending, calls = deque([(0, len(frame))] if len(frame) else []), 0
        while pending and calls <= _EXTRA_CALLS:
            start, stop = pending.popleft()
            calls += 1
            try:
                outputs[start:stop] = self._outputs(frame.iloc[start:stop])
            except ModelError as error:
                if self.probe is None and not isinstance(error, ModelCallError):
                    raise
                if calls == 1:
                    self._check_probe()
                middle = (start + stop) // 2
                pending.extend([(start, middle), (middle, stop)] if stop - start > 1 else [])
        if calls == 1 and bool(outputs.isnan().any()):
            self._check_probe()
        return outputs

    def _check_probe(self) -> None:
        """Raise if the model fails for a row that it predicted before."""
        if self.probe is None:
            return
        try:
            self._outputs(self.probe, strict=True)
        except ModelError as error:
            raise ModelError(f"{PROBE_FAILED} {error}") from error

    def __repr__(self) -> str:
        kind = f"{len(self.labels)} classes; {self.output_kind}" if self.labels else self.output_kind
        return f"Predictor({self.name}, {kind})"

    @property
    def _call_name(self) -> str:
        return f"`{self.name}.{self.method}`" if self.method else self.name

    @property
    def _expected(self) -> str:
        names = ", ".join(map(repr, self.labels[:10]))
        if self.output_kind == "labels":
            return f"labels of shape (n,), out of {names}"
        if self.output_kind == "probabilities":
            also = f", or (n,) for that of {self.labels[1]!r}" if len(self.labels) == 2 else ""
            return f"probabilities of shape (n, {len(self.labels)}), in the order {names}{also}"
        return "finite numbers of shape (n,)"

    def _call(self, frame: pd.DataFrame) -> object:
        """Call the model on a copy of rows; turn its exceptions into a :class:`ModelCallError`."""
        add_model_call(len(frame))
        rows: Any = frame.copy()
        rows.index = pd.RangeIndex(len(rows))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if self.input_format is not None:
                    rows = self.input_format.select(rows)
                    rows = np.array(rows) if self.input_format.as_array else rows
                return self.function(rows)
            except Exception as error:
                text = " ".join(str(error).split()).rstrip(".")
                columns = ", ".join(f"{name} {dtype}" for name, dtype in frame.dtypes.iloc[:10].items())
                raise ModelCallError(
                    f"{self._call_name} raised {type(error).__name__} for rows of shape {frame.shape}, first "
                    f"columns {columns}: {text}. It must be fitted, and accept any number of rows of the "
                    "training table. If it needs preprocessed rows, pass a function: "
                    "`lambda frame: model.predict_proba(prepare(frame))`."
                ) from error

    def _numbers(self, result: object, n: int) -> Array:
        """Return the model's result as numbers ``(n, k)``, or ``(n, 1)`` if it has one number per row."""
        columns, k = as_columns(result, n, self.labels), len(self.labels)
        widths = {"probabilities": {k, 1 if k == 2 else k}, "scores": {1 if k == 2 else k}}.get(
            self.output_kind, {1}
        )
        if columns is None or len(columns) != n or columns.shape[1] not in widths:
            shape = getattr(result, "shape", None)
            got = f"{type(result).__name__}{'' if shape is None else f' of shape {tuple(shape)}'}"
            if isinstance(result, pd.DataFrame):
                got += f" with columns {', '.join(map(repr, result.columns[:10]))}"
            raise ModelError(
                f"{self._call_name} must return {self._expected}, for n = {n} rows; got {got}. Pass a "
                "function of the rows that returns this."
            )
        # Labels 0 and 1 are also the probability of 1, which stays right for rows with a value between.
        if self.output_kind == "labels" and self.labels != (0, 1):
            return np.vstack([np.eye(k), np.full(k, np.nan)])[label_codes(columns, self.labels)]
        numbers = pd.to_numeric(pd.Series(columns.ravel()), errors="coerce")
        return numbers.to_numpy(np.float64, na_value=np.nan, copy=True).reshape(columns.shape)

    def _outputs(self, frame: pd.DataFrame, *, strict: bool = False) -> Tensor:
        """Return the outputs of one call; if ``strict``, raise unless every row has a valid prediction."""
        n = len(frame)
        numbers = self._numbers(self._call(frame), n)
        finite = np.isfinite(numbers).all(axis=1)
        faults = {"are not known outcomes" if self.output_kind == "labels" else "are not finite": ~finite}
        if self.output_kind in ("probabilities", "labels"):
            outside = (numbers < -_TOLERANCE) | (numbers > 1 + _TOLERANCE)
            faults["are outside [0, 1]"] = finite & outside.any(axis=1)
            if numbers.shape[1] > 1:
                faults["do not sum to one"] = finite & (abs(numbers.sum(axis=1) - 1) > _TOLERANCE)
        invalid = np.logical_or.reduce(list(faults.values()))
        if strict and invalid.any():
            listed = ", ".join(f"{mask.sum()} {fault}" for fault, mask in faults.items() if mask.any())
            raise ModelError(
                f"{self._call_name} must return {self._expected}; of its predictions for {n} training rows "
                f"{listed}. Call it on these rows to see, or pass a function that returns this."
            )
        numbers[invalid] = np.nan
        outputs = torch.from_numpy(numbers)
        if not self.labels:
            return outputs[:, 0]
        if self.output_kind == "scores":
            one = outputs.shape[1] == 1
            scores = torch.cat([torch.zeros_like(outputs), outputs], dim=1) if one else outputs
            return scores.softmax(dim=1)
        proba = torch.cat([1 - outputs, outputs], dim=1) if outputs.shape[1] == 1 else outputs
        proba = proba.clamp(0, 1)
        return proba / proba.sum(dim=1, keepdim=True)

    def _check(self, rows: pd.DataFrame) -> None:
        """Raise unless the model predicts every row, the same in every call and batch."""
        first = self._outputs(rows, strict=True)
        changed = outputs_differ(first, self._outputs(rows, strict=True), tolerance=_TOLERANCE_BETWEEN_CALLS)
        if changed.any():
            raise ModelError(
                f"{self._call_name} must be deterministic; it changes its predictions between calls for "
                f"{int(changed.sum())} of {len(rows)} training rows. Set its random state, or switch it to "
                "evaluation mode."
            )
        changed = outputs_differ(first, self._outputs(rows.iloc[::-1], strict=True).flip(0))
        order = (first @ torch.arange(len(self.labels)).double() if self.labels else first).argsort()
        for row in order[torch.linspace(0, len(rows) - 1, _SINGLE_ROWS).long()].tolist():
            single = self._outputs(rows.iloc[[row]], strict=True)
            changed[row] |= outputs_differ(first[[row]], single)[0]
        if changed.any():
            raise ModelError(
                f"{self._call_name} must predict each row independently; its prediction depends on the other "
                f"rows of the batch for {int(changed.sum())} training rows. Do not use means, ranks or the "
                "order of the rows."
            )


def make_predictor(
    model: object, frame: pd.DataFrame, labels: tuple[Any, ...] | None, table: TableFormat = PANDAS
) -> Predictor:
    """Return a model as a :class:`Predictor`, checked on training rows.

    A function returns probabilities (in the order of the labels, or in columns named by them), the
    probability of the second of two labels, labels, or the values of a regression. ``labels`` are the sorted
    labels of ``y``, which is the order of a model without ``classes_``; None for a regression. ``table`` is
    what ``fit`` was given, and a function gets; a model with methods gets it if nothing else works.

    Example:
        >>> frame = pd.DataFrame({"age": [31, 54, 47, 25]})
        >>> def score(rows):
        ...     return rows["age"] / 100
        >>> model = make_predictor(score, frame, ("no", "yes"))
        >>> model
        Predictor(a function `score`, 2 classes; probabilities)
        >>> model.outputs(frame)[0].tolist()
        [0.69, 0.31]
    """
    if isinstance(model, type) or not (_has_methods(model) or callable(model)):
        got = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        onnx = hasattr(model, "get_inputs") or hasattr(model, "SerializeToString")
        way = "Pass `plausiflow.OnnxModel(model)`" if onnx else "Fit it, or pass `lambda frame: ...`"
        raise InvalidInputError(
            "`model` must be a fitted model with `predict_proba` or `predict`, or a function of the table's "
            f"rows; got {got}. {way}."
        )
    if not len(frame):
        raise InvalidInputError("`frame` must hold training rows to check the model on; it is empty.")
    predictor = _find_output_kind(model, _checked_rows(frame), _model_labels(model, labels), table)
    return check_predictor(predictor, frame)


def check_predictor(predictor: Predictor, frame: pd.DataFrame) -> Predictor:
    """Return a predictor that predicts training rows, the same in every call and batch; else raise."""
    predictor._check(_checked_rows(frame))
    return predictor


def _checked_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.iloc[np.linspace(0, len(frame) - 1, min(len(frame), _CHECKED_ROWS)).astype(np.int64)]


def restore_predictor(
    model: Fitted, method: str, input_format: InputFormat, output_kind: OutputKind, labels: tuple[Any, ...]
) -> Predictor:
    """Return a predictor with known settings, without calling the model; see :class:`Predictor`."""
    function = getattr(model, method) if method else model
    return Predictor(_name(model), output_kind, labels, function, input_format, method)


def outputs_differ(first: Tensor, second: Tensor, *, tolerance: float = _TOLERANCE_BETWEEN_BATCHES) -> Tensor:
    """Return which rows have different outputs, bool, shape ``(n,)``; two NaN are equal.

    Numbers above one are compared by their ratio. The default tolerance allows for rounding between batches
    of a model in single precision.
    """
    same = (first - second).abs() <= tolerance * first.abs().clamp_min(1)
    same |= first.isnan() & second.isnan()
    return ~same.reshape(len(same), -1).all(dim=1) if len(same) else same.new_zeros(0)


def _find_output_kind(
    model: Fitted, rows: pd.DataFrame, labels: tuple[Any, ...], table: TableFormat
) -> Predictor:
    """Return the predictor with the most informative output; its results tell labels from numbers."""
    method = "predict" if _has_methods(model) else ""
    if _name(model) == "xgboost.Booster":
        method = "inplace_predict"
    elif labels and hasattr(model, "predict_proba"):
        return _find_input_format(model, "predict_proba", rows, labels, table)
    predictor = _find_input_format(model, method, rows, labels, table)
    columns = as_columns(predictor._call(rows), len(rows), labels) if labels else None
    if columns is None or columns.shape[1] != 1:
        return predictor
    is_text = any(isinstance(cell, str) for cell in columns[:, 0].tolist())
    if is_text or (label_codes(columns, labels) >= 0).all():
        predictor.output_kind = "labels"
        if len(labels) == 2 and method and hasattr(model, "decision_function"):
            scoring = _find_input_format(model, "decision_function", rows, labels, table)
            scoring.output_kind = "scores"
            with suppress(ModelError):  # scores of another shape
                scores, decisions = scoring.outputs(rows)[:, 1], predictor.outputs(rows)[:, 1]
                if ((scores - 0.5) * (decisions - 0.5) >= 0).all():
                    return scoring
    return predictor


def _find_input_format(
    model: Fitted, method: str, rows: pd.DataFrame, labels: tuple[Any, ...], table: TableFormat
) -> Predictor:
    """Return a predictor that passes the columns in the first form that the model accepts."""
    names = tuple(rows.columns)
    formats = _possible_formats(model, names) if method else [InputFormat(names, as_array=False)]
    if not table.is_pandas:
        own = InputFormat(names, as_array=table.library == "numpy", table=table)
        formats = [*formats, own] if method else [own, *formats]
    kind: OutputKind = "probabilities" if labels else "values"
    predictors = [restore_predictor(model, method, input_format, kind, labels) for input_format in formats]
    for predictor in predictors:
        with suppress(ModelCallError):
            predictor._call(rows)
            return predictor
    return predictors[0]


def _possible_formats(model: Fitted, names: tuple[str, ...]) -> list[InputFormat]:
    """Return the inputs to try: the columns that the model names, or else all, as a table and as an array.

    The table comes before the array: an inner model may know names that the outer one does not.
    """
    inner = getattr(model, "best_estimator_", model)
    packages = {base.__module__.partition(".")[0] for base in type(inner).__mro__}
    found = getattr(inner, "feature_names_in_", None)
    for attribute in (a for package, a in _NAME_ATTRIBUTES.items() if found is None and package in packages):
        found = getattr(inner, attribute, None)
    columns = [] if found is None else list(map(str, found() if callable(found) else found))
    numbered = [[f"{start}{i}" for i in range(len(columns))] for start in ("", "Column_")]
    try:
        if columns and (columns not in numbered or set(columns) <= set(names)):
            spelt = {name.replace(" ", "_"): name for name in names} | {name: name for name in names}
            found = SimpleNamespace(feature_names_in_=[spelt.get(name, name) for name in columns])
            return [InputFormat.from_model(found, names)]
        if getattr(model, "n_features_in_", None) is not None:
            InputFormat.from_model(model, names)
    except UnsupportedModelError as error:
        raise InvalidInputError(f"`model` must be fitted on columns of the table: {error}.") from error
    return [InputFormat(names, as_array=False), InputFormat(names, as_array=True)]


def _model_labels(model: Fitted, labels: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """Return the labels in the model's order, written as in ``y``; empty for a regression."""
    classes = getattr(model, "classes_", None)
    order = () if classes is None else tuple(map(to_python, classes))
    if labels is None:
        if order or hasattr(model, "predict_proba"):
            raise InvalidInputError(
                f"`model` must predict a number, because `y` holds numbers; {_name(model)} is a classifier. "
                "Use a regressor, or pass as `y` the outcomes that it was trained on."
            )
        return ()
    regressor = is_regressor(model) if isinstance(model, BaseEstimator) else isinstance(model, RegressorMixin)
    if regressor or getattr(model, "_estimator_type", None) == "regressor":
        raise InvalidInputError(
            f"`model` must decide between the outcomes of `y`, {', '.join(map(repr, labels[:10]))}; "
            f"{_name(model)} is a regressor. Use a classifier, or pass as `y` the numbers that it was "
            "trained on."
        )
    if any(isinstance(label, np.ndarray) for label in order):
        raise InvalidInputError(
            f"`model` must predict one outcome; {_name(model)} predicts {len(order)}. Pass a function of one "
            "of them: `lambda frame: model.predict_proba(frame)[0]`."
        )
    written = {label: label for label in labels}  # a label 1 may be True in `y`
    known = reorder_classes(labels, torch.arange(len(labels)), order or None)[0]
    return tuple(written.get(label, label) for label in known)


def _has_methods(model: object) -> bool:
    return hasattr(model, "predict") or hasattr(model, "predict_proba")


def _name(model: object) -> str:
    kind = type(model)
    if not _has_methods(model):
        return f"a function `{getattr(model, '__name__', kind.__name__)}`"
    package = kind.__module__.partition(".")[0]
    return f"{package}.{kind.__name__}" if kind.__name__ == "Booster" else kind.__name__
