"""The explained model in a saved explainer: how it is stored and restored.

Networks of plausiflow are stored as weights, estimators as :mod:`plausiflow.persistence.estimators` writes
them; the user passes any other model to ``load`` again. In each case the document holds what ``fit`` found
out about the model: its type, how to call it, and its surrogate. Nothing is tried on training rows again,
which are not stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from torch import Tensor, nn

from plausiflow.core import Classifier, Regressor
from plausiflow.errors import InvalidInputError, ModelError, PlausiflowError
from plausiflow.models import (
    BlackBox,
    ConvertedClassifier,
    ConvertedRegressor,
    Decision,
    EncodedModel,
    Forest,
    InputFormat,
    OutputKind,
    Predictor,
    Surrogate,
    TableModel,
    TableModule,
    UnsupportedModelError,
    convert_classifier,
    convert_regressor,
    restore_predictor,
    restore_relaxed_trees,
    restore_trained_surrogate,
    stated_cutoffs,
    torch_classifier,
    torch_regressor,
)
from plausiflow.persistence.estimators import (
    NotStorableError,
    StoredEstimator,
    restore_estimator,
    store_estimator,
)
from plausiflow.persistence.states import TensorDict, get_settings, get_state, is_known, restore
from plausiflow.persistence.synthetic_rows import (
    ROUNDING,
    SyntheticRows,
    differing_rows,
    require_same_outputs,
)
from plausiflow.tables import PANDAS, TableFormat
from plausiflow.validation import to_float

METHODS = ("", "predict", "predict_proba", "decision_function", "inplace_predict")
"""Methods by which a model may be called; the empty name calls the model itself."""
SHARED = "shared"
"""The surrogate of a retrained model that has that of the explained model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredModel:
    """A model as it is stored."""

    document: Mapping[str, Any]  # JSON values.
    tensors: Mapping[str, TensorDict] = field(default_factory=dict)  # Of a network and a surrogate, by file.
    files: Mapping[str, bytes] = field(default_factory=dict)  # Bytes of an estimator, by file.


def store_model(user_model: object, model: TableModel, rows: SyntheticRows) -> tuple[StoredModel, Tensor]:
    """Return a model as it is stored, and its outputs for synthetic rows.

    ``model`` is what ``user_model`` was resolved to. A stored copy must give the same outputs.
    """
    assert isinstance(model, EncodedModel | BlackBox)
    document, tensors = _describe(user_model, model)
    outputs = rows.outputs(model.predictor if isinstance(model, BlackBox) else model)
    network: Any = model.model if isinstance(model, EncodedModel) else None
    if is_known(network):
        tensors["network"] = get_state(network)
        document |= {"stored": "network", "settings": get_settings(network)}
        return StoredModel(document=document, tensors=tensors), outputs
    try:
        if document["model_type"] not in ("converted", "predictor"):
            raise NotStorableError(f"models of the class {document['class']} are not stored")
        stored = store_estimator(user_model)
        document |= {"stored": stored.file, "estimator": dict(stored.attributes)}
        copy = _resolve(document, _read_back(stored), rows)
        if bool(differing_rows(rows.outputs(copy), outputs, ROUNDING).any()):
            raise NotStorableError("a stored copy gives other outputs")
        return StoredModel(document=document, tensors=tensors, files={stored.file: stored.content}), outputs
    except NotStorableError as reason:
        document |= {"stored": None, "not_stored_because": str(reason)}
        return StoredModel(document=document, tensors=tensors), outputs


def restore_model(
    stored: StoredModel,
    given: object,
    rows: SyntheticRows,
    outputs: Tensor,
    *,
    name: str = "`model`",
    shared: Surrogate | None = None,
) -> tuple[object, EncodedModel | BlackBox]:
    """Return the model that was stored or is given, and what it is resolved to.

    If the user passes the model, it is ``given``, and stored files are not read. Its outputs for synthetic
    rows must be those ``outputs`` that were saved, otherwise a :class:`ModelError` is raised, which calls it
    ``name``. ``shared`` is the surrogate of the explained model, which a retrained one may share.
    """
    document = stored.document
    user_model = _load_stored(stored) if given is None else given
    model = _resolve(document, user_model, rows)
    require_same_outputs(rows.outputs(model), outputs, given=given is not None, name=name)
    decision = _restore_decision(document, user_model, rows)
    if isinstance(model, EncodedModel):
        return user_model, replace(model, decision=decision, encoder=rows.encoder)
    if document["surrogate"] == SHARED and shared is not None:
        surrogate = replace(shared, own_trees=None)
    else:
        surrogate = _restore_surrogate(document, user_model, stored.tensors["surrogate"], rows)
    n_rows, reason = int(document["surrogate_rows"]), str(document["reason"])
    sample = rows.frame.iloc[:1]
    return user_model, BlackBox(model, surrogate, rows.encoder, sample, n_rows, reason, decision)


def _read_back(stored: StoredEstimator) -> object:
    try:
        return restore_estimator(stored, known=True)
    except (PlausiflowError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise NotStorableError(f"a stored copy cannot be read ({error})") from error


def _describe(
    user_model: object, model: EncodedModel | BlackBox
) -> tuple[dict[str, Any], dict[str, TensorDict]]:
    """Return everything known about a model besides the model itself."""
    document: dict[str, Any] = {"class": type(user_model).__name__, "labels": _plain_labels(model.labels)}
    document["decision"] = _describe_decision(model.decision)
    if isinstance(model, BlackBox):
        predictor, input_format = model.predictor, model.predictor.input_format
        assert input_format is not None
        imitation = isinstance(model.surrogate.cells, nn.Identity)
        document |= {"model_type": "predictor", "method": predictor.method, "output": predictor.output_kind}
        document |= _describe_input(input_format)
        document |= {"surrogate": "imitation" if imitation else "trees"}
        document |= {"surrogate_rows": model.n_surrogate_rows, "reason": model.reason}
        return document, {"surrogate": dict(model.surrogate.learned)}
    document["description"] = model.description
    if isinstance(model.model, ConvertedClassifier | ConvertedRegressor):
        return document | {"model_type": "converted"}, {}
    if isinstance(model.model, TableModule):
        return document | {"model_type": "module", "output": model.model.output}, {}
    return document | {"model_type": "encoded"}, {}


def _describe_decision(decision: Decision) -> dict[str, Any]:
    """Return how a model decides, as JSON values."""
    document: dict[str, Any] = {
        "cutoffs": list(decision.cutoffs),
        "stated": decision.stated,
        "description": decision.description,
    }
    for name in ("predict", "probabilities"):
        own: Predictor | None = getattr(decision, name)
        if own is None:
            document[name] = None
        else:
            assert own.input_format is not None
            document[name] = {"method": own.method, "output": own.output_kind}
            document[name] |= _describe_input(own.input_format)
    return document


def _describe_input(taken: InputFormat) -> dict[str, Any]:
    """Return the columns that a model takes, as JSON values."""
    document: dict[str, Any] = {"columns": list(taken.names), "as_array": taken.as_array}
    return document if taken.table.is_pandas else document | {"table": taken.table.to_dict()}


def _restore_decision(document: Mapping[str, Any], model: object, rows: SyntheticRows) -> Decision:
    """Return how a model decides; a cut-off that it states must be the saved one."""
    saved, labels = document["decision"], tuple(document["labels"])
    calls = {
        name: None
        if saved[name] is None
        else _restore_predictor({**saved[name], "class": document["class"]}, model, labels, rows)
        for name in ("predict", "probabilities")
    }
    cutoffs = tuple(to_float(cutoff) for cutoff in saved["cutoffs"])
    if len(cutoffs) not in (0, len(labels)) or not all(0 < cutoff < 1 for cutoff in cutoffs):
        raise ValueError(f"there must be a cut-off between 0 and 1 for each of {len(labels)} outcomes")
    stated = saved["stated"] is True
    kinds: tuple[OutputKind, ...] = ("probabilities", "scores")
    if stated and not any(_same(cutoffs, own) for kind in kinds for own in stated_cutoffs(model, kind)):
        raise ModelError(
            "`model` must be the model that was explained: it states another cut-off than the saved "
            f"{cutoffs[-1]:.6g} for {labels[-1]!r}. Pass that model, or fit a new explainer."
        )
    return Decision(cutoffs=cutoffs, stated=stated, description=str(saved["description"]), **calls)


def _same(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    return all(math.isclose(a, b, abs_tol=1e-12) for a, b in zip(first, second, strict=True))


def _plain_labels(labels: tuple[Any, ...]) -> list[Any]:
    others = [repr(label) for label in labels if not isinstance(label, str | bool | int | float)]
    if others:
        raise InvalidInputError(
            "Outcomes must be text, numbers or booleans to be saved; got "
            f"{', '.join(others[:5])}. Convert them, such as y.map(str), and fit again."
        )
    return list(labels)


def _load_stored(stored: StoredModel) -> object:
    document, file = stored.document, stored.document["stored"]
    if file is None:
        raise InvalidInputError(
            f"The model of this explainer, a {document['class']}, is not stored with it: "
            f"{document['not_stored_because']}. Pass it: `Explainer.load(folder, model=model)`."
        )
    if file == "network":
        return restore(document["settings"], stored.tensors["network"])
    content, attributes = stored.files[file], document["estimator"]
    return restore_estimator(StoredEstimator(file=file, content=content, attributes=attributes))


def _resolve(document: Mapping[str, Any], model: object, rows: SyntheticRows) -> EncodedModel | Predictor:
    """Return the model as a function of rows, without its surrogate."""
    labels, model_type, reason = tuple(document["labels"]), document["model_type"], ""
    if model_type == "predictor":
        return _restore_predictor(document, model, labels, rows)
    resolved: Any = model
    if model_type == "converted":
        convert = convert_classifier if labels else convert_regressor
        try:
            resolved = convert(model, rows.encoder, rows.frame, verify=False)
        except UnsupportedModelError as error:
            resolved, reason = None, f": {error}"
    elif model_type == "module" and isinstance(model, nn.Module):
        if labels:
            resolved = torch_classifier(model, rows.encoder, rows.frame, len(labels), document["output"])
        else:
            resolved = torch_regressor(model, rows.encoder, rows.frame)
    elif model_type not in ("encoded", "module"):
        raise ValueError(f"the model type {model_type!r} is not known")
    if not isinstance(resolved, Classifier if labels else Regressor):
        raise InvalidInputError(
            f"`model` must be the {document['class']} that the explainer was fitted to "
            f"({document['description']}); got a {type(model).__name__}{reason}. Pass that model."
        )
    return EncodedModel(resolved, labels, str(document["description"]))


def _restore_predictor(
    document: Mapping[str, Any], model: object, labels: tuple[Any, ...], rows: SyntheticRows
) -> Predictor:
    method, output, names = document["method"], document["output"], tuple(document["columns"])
    known = set(rows.encoder.schema.names)
    if method not in METHODS or output not in get_args(OutputKind) or not known.issuperset(names):
        raise ValueError("it is not known how to call the model")
    if not (hasattr(model, method) if method else callable(model)):
        raise InvalidInputError(
            f"`model` must be the {document['class']} that the explainer was fitted to, with "
            f"{f'the method `{method}`' if method else 'a call'}; got a {type(model).__name__} without it. "
            "Pass that model."
        )
    table = TableFormat.from_dict(document["table"]) if "table" in document else PANDAS
    inputs = InputFormat(names, bool(document["as_array"]), table)
    return restore_predictor(model, method, inputs, output, labels)


def _restore_surrogate(
    document: Mapping[str, Any], model: object, learned: TensorDict, rows: SyntheticRows
) -> Surrogate:
    if document["surrogate"] == "imitation":
        return restore_trained_surrogate(Forest.restore(learned), rows.encoder.layout)
    try:
        return restore_relaxed_trees(model, rows.encoder, rows.frame, learned)
    except UnsupportedModelError as error:
        raise InvalidInputError(
            f"`model` must be the {document['class']} that the explainer was fitted to; its trees cannot be "
            f"read: {error}. Pass that model."
        ) from error
