"""The model that is explained, as it is kept beside an explainer, and made again.

Our own networks are kept as weights, estimators as :mod:`plausiflow.persistence.estimators` writes them. Any
other model is given again. In each case what was found out about it when the explainer was fitted is kept,
so that nothing is tried again on training rows, which are not there: how it is asked, or what a module
returns, or the trees that lead a search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import pandas as pd
from torch import Tensor, nn

from plausiflow.core import Classifier, Regressor
from plausiflow.errors import InvalidInputError, PlausiflowError
from plausiflow.models import (
    BlackBox,
    ConvertedClassifier,
    ConvertedRegressor,
    EncodedModel,
    Forest,
    Intake,
    OutputKind,
    Predictor,
    Refused,
    Surrogate,
    TableModule,
    asked_so,
    convert,
    convert_regressor,
    restore_imitation,
    restore_relaxed_trees,
    torch_classifier,
    torch_regressor,
)
from plausiflow.persistence import estimators
from plausiflow.persistence.estimators import NotStored, Stored
from plausiflow.persistence.probes import ROUNDING, probe_answers, require_same_answers, same_answers
from plausiflow.persistence.states import KINDS, State
from plausiflow.tables import Encoder

METHODS = ("", "predict", "predict_proba", "decision_function", "inplace_predict")
"""How a model may be asked; by no method where it is itself called."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """Synthetic rows that a model is asked about.

    Attributes:
        encoder: Of the table.
        x: Encoded rows.
        frame: The same as rows of the table.
    """

    encoder: Encoder
    x: Tensor
    frame: pd.DataFrame


@dataclass(frozen=True, kw_only=True, eq=False)
class Kept:
    """A model as it is kept.

    Attributes:
        about: What JSON can hold.
        tensors: Weights of a network, and what a likeness has learned, by file.
        files: Bytes of an estimator, by file.
    """

    about: Mapping[str, Any]
    tensors: Mapping[str, State] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


def kept(model: object, decider: EncodedModel | BlackBox, probe: Probe) -> tuple[Kept, Tensor]:
    """A model as it is kept, and its answers to the probe.

    Args:
        model: As the user gave it.
        decider: What it was taken for.
        probe: To check a stored copy on.
    """
    about, tensors = _found_out(model, decider)
    answers = probe_answers(decider.asked if isinstance(decider, BlackBox) else decider, probe.x, probe.frame)
    own = decider.model if isinstance(decider, EncodedModel) else None
    if own in KINDS:
        tensors["network"] = KINDS.state_of(own)
        about |= {"stored": "network", "settings": KINDS.settings_of(own)}
        return Kept(about=about, tensors=tensors), answers
    try:
        if about["model_type"] not in ("converted", "asked"):
            raise NotStored(f"a {about['kind']} is not stored")
        saved = estimators.stored(model)
        about |= {"stored": saved.file, "estimator": dict(saved.about)}
        again = _answering(about, _read_back(saved), probe)
        if not same_answers(probe_answers(again, probe.x, probe.frame), answers, ROUNDING):
            raise NotStored("a stored copy does not answer as it does")
        return Kept(about=about, tensors=tensors, files={saved.file: saved.content}), answers
    except NotStored as reason:
        return Kept(about=about | {"stored": None, "why": str(reason)}, tensors=tensors), answers


def made_again(
    held: Kept, given: object, probe: Probe, answers: Tensor
) -> tuple[object, EncodedModel | BlackBox]:
    """The model that was kept or is given, and what it is taken for.

    Args:
        held: What was kept.
        given: The model, where it is given; its files are then not looked at.
        probe: To check it on.
        answers: To the probe, when it was kept.

    Raises:
        InvalidInputError: It was not stored and is not given, or cannot be what it was taken for.
        ModelError: It is another model.
    """
    about = held.about
    model = _stored_model(held) if given is None else given
    answering = _answering(about, model, probe)
    require_same_answers(probe_answers(answering, probe.x, probe.frame), answers, given=given is not None)
    if isinstance(answering, EncodedModel):
        return model, answering
    likeness = _likeness(about, model, held.tensors["likeness"], probe)
    return model, BlackBox(
        answering, likeness, probe.encoder, probe.frame.iloc[:1], int(about["taught"]), str(about["reason"])
    )


def _read_back(saved: Stored) -> object:
    """A stored model, read again at once."""
    try:
        return estimators.restored(saved)
    except (PlausiflowError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise NotStored(f"a stored copy cannot be read ({error})") from error


def _found_out(model: object, decider: EncodedModel | BlackBox) -> tuple[dict[str, Any], dict[str, State]]:
    """What is known of a model besides itself."""
    about: dict[str, Any] = {"kind": type(model).__name__, "labels": _plain_labels(decider.labels)}
    if isinstance(decider, BlackBox):
        method, intake = decider.asked.way
        student = isinstance(decider.likeness.cells, nn.Identity)
        about |= {"model_type": "asked", "method": method, "answers": decider.asked.answers}
        about |= {"columns": list(intake.names), "as_array": intake.as_array}
        about |= {"likeness": "student" if student else "trees"}
        about |= {"taught": decider.taught, "reason": decider.reason}
        return about, {"likeness": dict(decider.likeness.learned)}
    own = decider.model
    about["says"] = decider.description
    if isinstance(own, ConvertedClassifier | ConvertedRegressor):
        return about | {"model_type": "converted"}, {}
    if isinstance(own, TableModule):
        return about | {"model_type": "module", "output": own.output}, {}
    return about | {"model_type": "encoded"}, {}


def _plain_labels(labels: tuple[Any, ...]) -> list[Any]:
    strange = [repr(label) for label in labels if not isinstance(label, str | bool | int | float)]
    if strange:
        raise InvalidInputError(
            f"Outcomes must be texts, numbers or booleans to be saved; got {', '.join(strange[:5])}. Name "
            "them, such as y.map(str), and fit again."
        )
    return list(labels)


def _stored_model(held: Kept) -> object:
    how = held.about["stored"]
    if how is None:
        raise InvalidInputError(
            f"The model of this explainer, a {held.about['kind']}, is not stored with it: "
            f"{held.about['why']}. Give it: `Explainer.load(folder, model=model)`."
        )
    if how == "network":
        return KINDS.restored(held.about["settings"], held.tensors["network"])
    return estimators.restored(Stored(file=how, content=held.files[how], about=held.about["estimator"]))


def _answering(about: Mapping[str, Any], model: object, probe: Probe) -> EncodedModel | Predictor:
    """The model as it answers, without its likeness."""
    labels, how = tuple(about["labels"]), about["model_type"]
    if how == "asked":
        return _asked(about, model, labels, probe)
    made: Any = model
    if how == "converted" and labels:
        conversion = convert(model, probe.encoder, probe.frame, compared=False)
        made, reason = conversion.classifier, conversion.reason
    elif how == "converted":
        converted = convert_regressor(model, probe.encoder, probe.frame, compared=False)
        made, reason = converted.regressor, converted.reason
    elif how == "module" and isinstance(model, nn.Module):
        made = (
            torch_classifier(model, probe.encoder, probe.frame, len(labels), about["output"])
            if labels
            else torch_regressor(model, probe.encoder, probe.frame)
        )
    elif how not in ("encoded", "module"):
        raise ValueError(f"a model is not taken for {how!r}")
    if not isinstance(made, Classifier if labels else Regressor):
        why = f": {reason}" if how == "converted" else ""
        raise InvalidInputError(
            f"`model` must be the {about['kind']} that the explainer was fitted with, taken for "
            f"{about['says']}; got a {type(model).__name__}{why}. Give that model."
        )
    return EncodedModel(made, labels, str(about["says"]))


def _asked(about: Mapping[str, Any], model: object, labels: tuple[Any, ...], probe: Probe) -> Predictor:
    method, answers, names = about["method"], about["answers"], tuple(about["columns"])
    known = {*probe.encoder.schema.names}
    if method not in METHODS or answers not in get_args(OutputKind) or not known.issuperset(names):
        raise ValueError("how the model is asked is not known")
    if not (hasattr(model, method) if method else callable(model)):
        raise InvalidInputError(
            f"`model` must be the {about['kind']} that the explainer was fitted with, asked by "
            f"`{method or 'calling it'}`; got a {type(model).__name__}, which cannot. Give that model."
        )
    return asked_so(model, method, Intake(names, bool(about["as_array"])), answers, labels)


def _likeness(about: Mapping[str, Any], model: object, learned: State, probe: Probe) -> Surrogate:
    if about["likeness"] == "student":
        return restore_imitation(Forest.of_state(learned), probe.encoder.layout)
    try:
        return restore_relaxed_trees(model, probe.encoder, probe.frame, learned)
    except Refused as refusal:
        raise InvalidInputError(
            f"`model` must be the {about['kind']} that the explainer was fitted with; its trees cannot be "
            f"read: {refusal}. Give that model."
        ) from refusal
