"""A model in an ONNX file, called as a predictor through onnxruntime.

Converters write one input with all columns, or one input for each column. A classifier returns labels and
probabilities, the latter as a tensor or as mappings from labels; a regressor, and a network that was
exported, return one tensor of floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from plausiflow.errors import InvalidInputError, MissingExtraError

_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": object,
}
"""Types of inputs as onnxruntime calls them."""


class OnnxModel:
    """A fitted model of an ONNX file; it has ``predict_proba`` if it is a classifier.

    Attributes:
        content: The bytes of the file; None for a session of onnxruntime, whose file is not known.
        classes: Outcomes in the order of the probabilities; None: those of ``y``, sorted.
        logits: Whether the probabilities are the softmax of its only output (or the logistic function, if
            that is one column).

    Example:
        >>> OnnxModel("credit.onnx").predict_proba(rows)   # doctest: +SKIP
        array([[0.8, 0.2]])
    """

    def __init__(
        self,
        source: str | Path | bytes | object,
        *,
        classes: Sequence[Any] | None = None,
        logits: bool = False,
    ) -> None:
        """Read a model: the path of a file, its bytes, an ``onnx.ModelProto``, or an ``InferenceSession``."""
        self.classes, self.logits = classes, logits
        self.content = None if hasattr(source, "get_inputs") else _content(source)
        session: Any = source if self.content is None else _session(self.content)
        self._session = session
        self._inputs = session.get_inputs()
        self._outputs = session.get_outputs()
        unknown = [f"{each.name} {each.type}" for each in self._inputs if each.type not in _DTYPES]
        if unknown:
            raise InvalidInputError(
                f"`source` must take tensors of numbers or text; its inputs {', '.join(unknown)} are others. "
                "Export the model with such inputs, or pass a function that calls it."
            )
        self._labels = next((o.name for o in self._outputs if _is_labels(o) and len(self._outputs) > 1), None)
        if len(self._inputs) > 1:
            self.feature_names_in_ = np.array([each.name for each in self._inputs], dtype=object)
        elif isinstance(width := self._inputs[0].shape[-1], int):
            self.n_features_in_ = width
        if classes is not None:
            self.classes_ = np.array(list(classes), dtype=object)
        if self._labels is not None or logits or classes is not None:
            self.predict_proba = self._predict_proba
        self._estimator_type = "classifier" if hasattr(self, "predict_proba") else "regressor"

    def __repr__(self) -> str:
        return f"OnnxModel({len(self._inputs)} inputs, {len(self._outputs)} outputs)"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.content is None:
            raise InvalidInputError(
                "An OnnxModel of a session cannot be copied to other processes. Pass the path of the file."
            )
        return _restore, (self.content, self.classes, self.logits)

    def predict(self, rows: pd.DataFrame | npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return labels or numbers, shape ``(n,)``."""
        if self._labels is not None:
            return np.asarray(self._run(rows, [self._labels])[0]).reshape(-1)
        if not hasattr(self, "predict_proba"):
            return np.asarray(self._run(rows, [self._outputs[0].name])[0], dtype=np.float64).reshape(-1)
        if self.classes is None:
            raise InvalidInputError(
                "`predict` needs `classes`, which this model does not name. Set them: "
                "`OnnxModel(path, classes=[...])`."
            )
        return np.asarray(self.classes_[self._predict_proba(rows).argmax(axis=1)])

    def _predict_proba(self, rows: pd.DataFrame | npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return probabilities, shape ``(n, k)``."""
        name = next(output.name for output in self._outputs if output.name != self._labels)
        values = self._run(rows, [name])[0]
        if len(values) and isinstance(values[0], Mapping):  # a mapping for each row
            order = sorted(values[0]) if self.classes is None else list(self.classes)
            values = [[row[label] for label in order] for row in values]
        proba = np.asarray(values, dtype=np.float64).reshape(len(rows), -1)
        if self.logits:
            proba = np.hstack([np.zeros_like(proba), proba]) if proba.shape[1] == 1 else proba
            proba = np.exp(proba - proba.max(axis=1, keepdims=True))
            return np.asarray(proba / proba.sum(axis=1, keepdims=True))
        return np.hstack([1 - proba, proba]) if proba.shape[1] == 1 else proba

    def _run(self, rows: pd.DataFrame | npt.NDArray[Any], outputs: list[str]) -> Any:  # noqa: ANN401
        """Run the model on rows and return the named outputs."""
        if len(self._inputs) == 1:
            array = rows.to_numpy() if isinstance(rows, pd.DataFrame) else rows
            given = {self._inputs[0].name: _as_input(array, self._inputs[0].type)}
        else:
            frame = pd.DataFrame(rows, columns=list(self.feature_names_in_))
            given = {i.name: _as_input(frame[i.name].to_numpy()[:, None], i.type) for i in self._inputs}
        return self._session.run(outputs, given)


def _restore(content: bytes, classes: Sequence[Any] | None, logits: bool) -> OnnxModel:
    return OnnxModel(content, classes=classes, logits=logits)


def _content(source: Any) -> bytes:  # noqa: ANN401
    if isinstance(source, str | Path):
        if not Path(source).is_file():
            raise InvalidInputError(f"`source` must be the path of an ONNX file; there is no file {source}.")
        return Path(source).read_bytes()
    if isinstance(source, bytes):
        return source
    if hasattr(source, "SerializeToString"):
        return bytes(source.SerializeToString())
    raise InvalidInputError(
        f"`source` must be the path of an ONNX file, its bytes or an onnx.ModelProto; got "
        f"{type(source).__name__}. Save the model to a file first."
    )


def _session(content: bytes) -> Any:  # noqa: ANN401
    """Return a session of onnxruntime on the CPU, with one thread, so that results do not vary."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "onnx", "An ONNX model") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    known = vars(onnxruntime.capi.onnxruntime_pybind11_state).values()
    errors = tuple(each for each in known if isinstance(each, type) and issubclass(each, Exception))
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except errors as error:
        text = " ".join(str(error).split())[:200]
        raise InvalidInputError(
            f"`source` must be an ONNX model that onnxruntime {onnxruntime.__version__} reads: {text}. "
            "Export it again, with an operator set that this version knows."
        ) from error


def _is_labels(output: Any) -> bool:  # noqa: ANN401
    return output.type in ("tensor(int64)", "tensor(string)", "tensor(int32)", "tensor(bool)")


def _as_input(array: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Return an array in the type of an input; text keeps its spelling."""
    if kind == "tensor(string)":
        return np.array([[str(cell) for cell in row] for row in array], dtype=object).reshape(array.shape)
    return np.ascontiguousarray(array.astype(_DTYPES[kind]))
