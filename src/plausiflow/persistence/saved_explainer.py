"""The parts of a fitted explainer, saved to a directory and loaded from it.

Everything learned is saved as tensors; whatever follows from the schema, the rules and the settings is built
again. The outputs of the model, its surrogate, the plausibility and the judges for synthetic rows are saved,
too. Loaded parts must give the same outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plausiflow.constraints import LearnedRule, Rule, rules_from_dicts
from plausiflow.core import Plausibility
from plausiflow.densities import ClassLogProba, CrossFitEnsemble, Judges, Thresholded
from plausiflow.errors import InvalidInputError, PlausiflowError
from plausiflow.models import TableModel
from plausiflow.persistence.document_checks import check_finite, check_schema, check_sizes, check_width
from plausiflow.persistence.files import (
    VALUE_ERRORS,
    FolderContents,
    as_artefact_error,
    damaged,
    read_folder,
    write_folder,
)
from plausiflow.persistence.states import (
    TensorDict,
    build,
    get_settings,
    get_state,
    has_user_class,
    library_versions,
)
from plausiflow.persistence.stored_models import StoredModel, restore_model, store_model
from plausiflow.persistence.stored_refits import SavedRefits, restore_refits, store_refits
from plausiflow.persistence.synthetic_rows import SyntheticRows, TrainingSummary, draw_rows
from plausiflow.tables import Encoder, Schema, to_python

_SURROGATE_TEMPERATURE, _TOLERANCE = 0.01, 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedExplainer:
    """The parts of a fitted explainer."""

    settings: Mapping[str, Any]  # JSON values, without the model, the rules and the density.
    constraints: Sequence[Rule]
    learned_rules: Sequence[LearnedRule]  # Rules that the training table showed.
    encoder: Encoder
    training_summary: TrainingSummary
    user_model: Any  # The model that the user passed.
    model: TableModel  # What it was resolved to.
    criterion: Mapping[str, Any]  # How outputs are compared with targets, as JSON values.
    outcome: str  # The name of the outcome.
    plausibility: Plausibility
    judges: Judges | None  # Densities that guided no search; None without judges.
    bank: TensorDict  # Training rows that satisfy everything.
    training: TensorDict  # All encoded training rows and their classes, if they are saved for metrics.
    refits: SavedRefits | None = None  # Retrained models, if answers must last.

    @property
    def n_classes(self) -> int:
        """The number of outcomes, or of bins of a predicted number."""
        return len(self.model.labels) or len(self.criterion["edges"]) + 1

    @torch.no_grad()
    def evaluate(self, x: Tensor) -> TensorDict:
        """Return the values of plausibility, judges and surrogate for rows, with the classes in turn."""
        y = torch.arange(len(x)) % self.n_classes
        values = {"scores": self.plausibility.score(x, y)}
        if self.judges is not None:
            values["judgements"] = self.judges.passes(x, y)
        if self.model.true_outputs is not None:
            values["surrogate outputs"] = self.model.outputs_at(_SURROGATE_TEMPERATURE)(x)
        return values


def save(folder: Path, parts: SavedExplainer) -> None:
    """Write the parts of an explainer to a new or empty directory, or replace a saved explainer."""
    plausibility: Any = parts.plausibility
    ensemble = isinstance(plausibility, CrossFitEnsemble)
    described = replace(plausibility, outcome=None) if ensemble else plausibility
    x = draw_rows(parts.encoder)
    rows = SyntheticRows.decode(parts.encoder, x, parts.training_summary)
    stored, outputs = store_model(parts.user_model, parts.model, rows)
    document: dict[str, Any] = {
        "versions": library_versions(),
        "training": asdict(parts.training_summary),
        "schema": parts.encoder.schema.to_dict(),
        "missing": parts.encoder.missing,
        "rules": [rule.to_dict() for rule in parts.constraints],
        "learned_rules": [rule.to_dict() for rule in parts.learned_rules],
        "settings": {name: _to_json(value, name) for name, value in parts.settings.items()},
        "criterion": dict(parts.criterion),
        "outcome": parts.outcome,
        "model": dict(stored.document),
        "plausibility": get_settings(described, user_classes=True),
        "thresholds": plausibility.thresholds_.tolist() if ensemble else None,
        "margins": plausibility.margin_.tolist() if ensemble else None,
        "judges": None if parts.judges is None else get_settings(parts.judges, user_classes=True),
    }
    tensors = {"plausibility": get_state(plausibility), "bank": parts.bank, **stored.tensors}
    files = dict(stored.files)
    if parts.refits is not None:
        refits = store_refits(parts.refits, rows)
        document["refits"] = dict(refits.document)
        tensors.update(refits.tensors)
        files.update(refits.files)
    tensors["synthetic_rows"] = {"x": x, "outputs": outputs, **parts.evaluate(x)}
    if parts.judges is not None:
        tensors["judges"] = get_state(parts.judges)
    if parts.training:
        tensors["training"] = parts.training
    write_folder(folder, FolderContents(document=document, tensors=tensors, models=files))


def load(
    folder: Path,
    model: object,
    density: object,
    class_log_proba: Callable[[TableModel], ClassLogProba],
    retrain: Sequence[object] | None = None,
) -> SavedExplainer:
    """Read the parts of an explainer.

    ``model`` is the explained model if the user passes it, ``retrain`` are the retrained models if the user
    passes them, and ``density`` is an object of the user's own class, otherwise None. ``class_log_proba``
    returns the log-probabilities of a model, for ``labels="bayes"``. Raises an :class:`ArtefactError` if the
    directory cannot be read, and an :class:`InvalidInputError` or :class:`ModelError` if ``model``,
    ``retrain`` or ``density`` is another one.
    """
    contents = read_folder(folder)
    with as_artefact_error(folder):
        parts = _restore_parts(contents, model, density, class_log_proba, retrain)
        _check(folder, parts, contents)
    return parts


def _restore_parts(
    contents: FolderContents,
    model: object,
    density: object,
    class_log_proba: Callable[[TableModel], ClassLogProba],
    retrain: Sequence[object] | None,
) -> SavedExplainer:
    """Restore the parts; the tensors and bytes of a part that is restored are dropped, to save memory."""
    document, tensors = contents.document, contents.tensors
    if density is not None and not has_user_class([document["plausibility"], document["judges"]]):
        raise InvalidInputError(
            "`density` must be None: this explainer has no density of a user's class. Its densities are "
            "stored with it."
        )
    check_schema(document["schema"])
    encoder = Encoder(Schema.from_dict(document["schema"]), document["missing"])
    check_width(encoder.layout.width, tensors)
    for name in ("plausibility", "judges"):
        check_sizes(document[name], tensors.get(name, {}), encoder.layout.width)
        if not has_user_class(document[name]):
            check_finite(name, tensors.get(name, {}))
    check_sizes(document["model"].get("settings"), tensors.get("network", {}), encoder.layout.width)
    for name in ("network", "surrogate"):
        check_finite(name, tensors.get(name, {}))
    check_finite("bank", {"deviations": tensors["bank"]["deviations"]})
    summary, saved_rows = TrainingSummary(**document["training"]), tensors["synthetic_rows"]
    rows = SyntheticRows.decode(encoder, saved_rows["x"], summary)
    stored = StoredModel(document=document["model"], tensors=tensors, files=contents.models)
    user_model, resolved = restore_model(stored, model, rows, saved_rows["outputs"])
    refits = _restore_refits(contents, retrain, resolved, rows)
    contents.models.clear()
    for name in ("network", "refits"):
        tensors.pop(name, None)
    plausibility = build(document["plausibility"], density)
    if document["settings"]["labels"] == "bayes" and isinstance(plausibility, CrossFitEnsemble):
        plausibility.outcome = class_log_proba(resolved)
    judges = build(document["judges"], density)
    if judges is not None:
        _load_state(judges, tensors.pop("judges"), density)
    _load_state(plausibility, tensors.pop("plausibility"), density)
    return SavedExplainer(
        settings=document["settings"],
        constraints=rules_from_dicts(document["rules"]),
        learned_rules=_learned_rules(document["learned_rules"]),
        encoder=encoder,
        training_summary=summary,
        user_model=user_model,
        model=resolved,
        criterion=document["criterion"],
        outcome=str(document["outcome"]),
        plausibility=plausibility,
        judges=judges,
        bank=tensors["bank"],
        training=tensors.get("training", {}),
        refits=refits,
    )


def _restore_refits(
    contents: FolderContents, retrain: Sequence[object] | None, model: TableModel, rows: SyntheticRows
) -> SavedRefits | None:
    """Restore the retrained models, if the explainer has any."""
    document = contents.document.get("refits")
    if document is not None:
        stored = StoredModel(document=document, tensors=contents.tensors, files=contents.models)
        return restore_refits(stored, retrain, model, rows)
    if retrain is not None:
        raise InvalidInputError(
            "`retrain` must be None: this explainer was fitted without `durability`. Leave it out."
        )
    return None


def _learned_rules(entries: Sequence[Mapping[str, Any]]) -> list[LearnedRule]:
    rules = [rule for rule in rules_from_dicts(entries) if isinstance(rule, LearnedRule)]
    if len(rules) != len(entries):
        raise InvalidInputError("`learned_rules` must be rules with their evidence.")
    return rules


def _load_state(fitted: Any, state: TensorDict, density: object) -> None:  # noqa: ANN401
    try:
        fitted.load_state(state)
    except VALUE_ERRORS as error:
        if density is None or isinstance(error, PlausiflowError):
            raise
        raise InvalidInputError(
            f"`density.load_state` raised {type(error).__name__}: {error}. Pass a "
            f"{type(density).__name__} with the settings of the one that was saved."
        ) from error


def _check(folder: Path, parts: SavedExplainer, contents: FolderContents) -> None:
    """Check that tensors have the right shapes and that the parts give the saved outputs."""
    plausibility, k = parts.plausibility, parts.n_classes
    saved_rows = contents.tensors["synthetic_rows"]
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {}
    if isinstance(plausibility, CrossFitEnsemble):
        if plausibility.n_classes != k:
            raise damaged(folder, f"the densities have {plausibility.n_classes} classes, the model has {k}")
        shapes = {
            "thresholds": (plausibility.thresholds_, (plausibility.members, k)),
            "errors": (plausibility.errors_, (plausibility.members, k)),
            "margins": (plausibility.margin_, (k,)),
            "largest margins": (plausibility.max_margin_, (k,)),
        }
        if plausibility.held_out_.numel():
            shapes["percentiles"] = (plausibility.held_out_, (k, 101))
    elif isinstance(plausibility, Thresholded) and plausibility.log_delta_ is not None:
        shapes["thresholds"] = (plausibility.log_delta_, (k,))
    if parts.judges is not None and parts.judges.log_delta_ is not None:
        shapes["thresholds of the judges"] = (parts.judges.log_delta_, (parts.judges.count, k))
    for name, (tensor, shape) in shapes.items():
        if tuple(tensor.shape) != shape or not tensor.is_floating_point():
            raise damaged(folder, f"the {name} must be floats of shape {shape}")
    if parts.training and parts.training["x"].shape[1:] != saved_rows["x"].shape[1:]:
        raise damaged(folder, f"the training rows must have {saved_rows['x'].shape[1]} columns")
    for name, values in parts.evaluate(saved_rows["x"]).items():
        saved, now = saved_rows[name].double(), values.double()
        if not torch.allclose(now, saved, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
            if name == "scores" and has_user_class(contents.document["plausibility"]):
                raise InvalidInputError(
                    "`density` must be the one that the explainer was saved with: its scores of synthetic "
                    "rows differ from the saved ones. Pass one with the same settings and the same code."
                )
            raise damaged(folder, f"the {name} of synthetic rows differ from the saved ones")


def _to_json(value: object, name: str) -> object:
    value = to_python(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _to_json(item, name) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_to_json(item, name) for item in value]
    raise InvalidInputError(
        f"`{name}` must be made of text, numbers and booleans to be saved; got a {type(value).__name__}."
    )
