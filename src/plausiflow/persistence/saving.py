"""A fitted explainer's parts, to a directory and back.

What was learned is kept as tensors; everything that follows from the schema, the rules and the settings is
made again. OutputKind to synthetic rows are kept, too: of the model, of its likeness, of the densities and of
the judges. What is read must give the same ones, or it is not what was saved.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plausiflow.constraints import Rule, rules_from_dicts
from plausiflow.core import Plausibility
from plausiflow.densities import CrossFitEnsemble, Outcome
from plausiflow.errors import InvalidInputError, PlausiflowError
from plausiflow.models import BlackBox, EncodedModel
from plausiflow.persistence.checks import check_schema, check_sizes
from plausiflow.persistence.deciders import Kept, Probe, kept, made_again
from plausiflow.persistence.files import ArtefactError, Contents, damaged, read, write
from plausiflow.persistence.probes import ROWS, Origin, probe_frame, probe_rows
from plausiflow.persistence.states import Kinds, State, versions
from plausiflow.tables import Encoder, Schema, plain

_LIKENESS_TEMPERATURE, _TOLERANCE = 0.01, 1e-6
_WRONG = (
    LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, AssertionError,
    MemoryError, OSError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What code raises that is given other values than were written."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """What a fitted explainer is made of.

    Attributes:
        settings: Of the explainer, without the model and the rules, as JSON has them.
        constraints: The rules.
        encoder: Of the table.
        origin: What is remembered of the training table.
        model: As the user gave it.
        decider: What the model was taken for.
        aim: How answers are held against what is wanted, as JSON has it.
        outcome: What the outcome is called.
        densities: How plausible rows are.
        judges: Densities that give a second opinion, where there are any.
        bank: Training rows that are answers already.
        training: All encoded training rows and their classes, where these are kept for metrics.
    """

    settings: Mapping[str, Any]
    constraints: Sequence[Rule]
    encoder: Encoder
    origin: Origin | None
    model: Any
    decider: EncodedModel | BlackBox
    aim: Mapping[str, Any]
    outcome: str
    densities: Plausibility
    judges: Any
    bank: State
    training: State


def save(folder: Path, parts: Parts, kinds: Kinds) -> None:
    """Write the parts of an explainer to a directory.

    Args:
        folder: New, empty, or saved before.
        parts: Of a fitted explainer.
        kinds: What densities and judges may be made of.
    """
    densities, origin, x = _ensemble(parts), parts.origin, probe_rows(parts.encoder)
    assert origin is not None
    probe = Probe(encoder=parts.encoder, x=x, frame=probe_frame(parts.encoder, x, origin))
    held, answers = kept(parts.model, parts.decider, probe)
    tensors = {"densities": densities.state(), "bank": parts.bank, **held.tensors}
    tensors["probes"] = {"x": x, "answers": answers, **_opinions(parts, x)}
    about: dict[str, Any] = {
        "versions": versions(),
        "training": asdict(origin),
        "schema": parts.encoder.schema.to_dict(),
        "missing": parts.encoder.missing,
        "rules": [rule.to_dict() for rule in parts.constraints],
        "settings": {name: _plain(value, name) for name, value in parts.settings.items()},
        "aim": dict(parts.aim),
        "outcome": parts.outcome,
        "model": dict(held.about),
        "densities": kinds.settings_of(replace(densities, outcome=None)),
        "thresholds": densities.thresholds_.tolist(),
        "margins": densities.margin_.tolist(),
        "judges": None,
    }
    if parts.judges is not None:
        about["judges"], tensors["judges"] = kinds.settings_of(parts.judges), kinds.state_of(parts.judges)
    if parts.training:
        tensors["training"] = parts.training
    write(folder, Contents(about=about, tensors=tensors, models=held.files))


def load(
    folder: Path,
    model: object,
    kinds: Kinds,
    outcome_of: Callable[[EncodedModel | BlackBox], Outcome],
) -> Parts:
    """Read the parts of an explainer.

    Args:
        folder: Where they were saved.
        model: The model, where it is given.
        kinds: What densities and judges may be made of.
        outcome_of: The log-probabilities of a model, where these tell the classes of the density apart.

    Raises:
        ArtefactError: The directory cannot be read.
        InvalidInputError: The model must be given, or what is given is of another kind.
        ModelError: The model that is given is another one.
    """
    contents = read(folder)
    with reading(folder):
        return _parts(folder, contents, model, kinds, outcome_of)


def _parts(
    folder: Path,
    contents: Contents,
    model: object,
    kinds: Kinds,
    outcome_of: Callable[[EncodedModel | BlackBox], Outcome],
) -> Parts:
    about, tensors = contents.about, contents.tensors
    for settings, file in ((about["densities"], "densities"), (about["judges"], "judges")):
        check_sizes(settings, tensors.get(file, {}))
    check_sizes(about["model"].get("settings"), tensors.get("network", {}))
    check_schema(about["schema"])
    encoder = Encoder(Schema.from_dict(about["schema"]), about["missing"])
    origin, probes = Origin(**about["training"]), tensors["probes"]
    expected = (ROWS, encoder.layout.width)
    if probes["x"].shape != expected or probes["x"].dtype != torch.float64:
        raise ValueError(f"the probes must be doubles of shape {expected}")
    probe = Probe(encoder=encoder, x=probes["x"], frame=probe_frame(encoder, probes["x"], origin))
    held = Kept(about=about["model"], tensors=tensors, files=contents.models)
    model, decider = made_again(held, model, probe, probes["answers"])
    densities = kinds.made(about["densities"])
    if about["settings"]["labels"] == "bayes":
        densities.outcome = outcome_of(decider)
    parts = Parts(
        settings=about["settings"],
        constraints=rules_from_dicts(about["rules"]),
        encoder=encoder,
        origin=origin,
        model=model,
        decider=decider,
        aim=about["aim"],
        outcome=str(about["outcome"]),
        densities=densities.load_state(tensors["densities"]),
        judges=None if about["judges"] is None else kinds.restored(about["judges"], tensors["judges"]),
        bank=tensors["bank"],
        training=tensors.get("training", {}),
    )
    _check(folder, parts, probes)
    return parts


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Call whatever goes wrong in making objects of a file what it is: the file's fault."""
    try:
        yield
    except PlausiflowError:
        raise
    except ImportError as error:
        raise ArtefactError(
            f"The explainer saved in {folder} needs a package that is not installed here: {error}. Install "
            "it; `versions` in explainer.json tells what was in use."
        ) from error
    except _WRONG as error:
        text = " ".join(str(error).split())[:300]
        raise damaged(folder, f"its parts do not fit ({type(error).__name__}: {text})") from error


def _check(folder: Path, parts: Parts, probes: State) -> None:
    """Raise unless tensors have the shapes of the model and the table, and say what they said when saved."""
    own = _ensemble(parts)
    k = own.n_classes
    shapes = {
        "thresholds": (own.thresholds_, (own.members, k)),
        "errors": (own.errors_, (own.members, k)),
        "margins": (own.margin_, (k,)),
        "largest margins": (own.most_margin_, (k,)),
    }
    if own.held_out_.numel():
        shapes["percentiles"] = (own.held_out_, (k, 101))
    if parts.judges is not None:
        shapes["thresholds of the judges"] = (parts.judges.log_delta_, (parts.judges.count, k))
    for name, (tensor, shape) in shapes.items():
        if tuple(tensor.shape) != shape or not tensor.is_floating_point():
            raise damaged(folder, f"the {name} must be numbers of shape {shape}")
    if parts.decider.labels and len(parts.decider.labels) != k:
        raise damaged(folder, f"the densities know {k} outcomes, and the model {len(parts.decider.labels)}")
    if parts.training and parts.training["x"].shape[1:] != probes["x"].shape[1:]:
        raise damaged(folder, f"the training rows must have {probes['x'].shape[1]} columns")
    for name, found in _opinions(parts, probes["x"]).items():
        before, now = probes[name].double(), found.double()
        if not torch.allclose(now, before, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
            raise damaged(folder, f"the {name} of synthetic rows are not what they were")


@torch.no_grad()
def _opinions(parts: Parts, x: Tensor) -> State:
    """What densities, judges and a likeness say of synthetic rows, as one class after the other."""
    y = torch.arange(len(x)) % _ensemble(parts).n_classes
    opinions = {"scores": parts.densities.score(x, y)}
    if parts.judges is not None:
        opinions["judgements"] = parts.judges.passes(x, y)
    if isinstance(parts.decider, BlackBox):
        opinions["likeness"] = parts.decider.outputs(_LIKENESS_TEMPERATURE)(x)
    return opinions


def _ensemble(parts: Parts) -> CrossFitEnsemble:
    """The densities, which must be those that a fit makes."""
    if parts.origin is None or not isinstance(parts.densities, CrossFitEnsemble):
        raise InvalidInputError(
            "Only an explainer that was fitted can be saved; this one was put together otherwise, with a "
            f"{type(parts.densities).__name__}."
        )
    return parts.densities


def _plain(value: object, name: str) -> object:
    """A setting as JSON has it."""
    value = plain(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, name) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item, name) for item in value]
    raise InvalidInputError(
        f"`{name}` must be made of texts, numbers and booleans to be saved; got a {type(value).__name__}."
    )
