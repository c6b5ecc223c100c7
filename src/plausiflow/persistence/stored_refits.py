"""Retrained models in a saved explainer: each is stored and restored as the explained model is.

Their tensors share one file; each estimator has a file of its own, ``refit-00.skops`` and so on. If one of
them cannot be stored, the user passes all of them to ``load`` again, in the same order. Their outputs for
synthetic rows must be the saved ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from torch import Tensor

from plausiflow.errors import InvalidInputError
from plausiflow.models import BlackBox, TableModel
from plausiflow.persistence.document_checks import check_finite, check_sizes
from plausiflow.persistence.states import TensorDict, add_prefix
from plausiflow.persistence.stored_models import SHARED, StoredModel, restore_model, store_model
from plausiflow.persistence.synthetic_rows import SyntheticRows

LEARNED, OUTPUTS = "learned", "outputs"
"""Prefixes of tensors that belong to no single model."""
_PARTS = ("network", "surrogate")


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedRefits:
    """Retrained models, and what was learned with them."""

    models: Sequence[object]  # As they were trained.
    resolved: Sequence[TableModel]  # What they were resolved to.
    document: Mapping[str, Any]  # What was learned, as JSON values.
    tensors: TensorDict = field(default_factory=dict)  # And as tensors.


def store_refits(refits: SavedRefits, rows: SyntheticRows) -> StoredModel:
    """Return retrained models as they are stored: a document, tensors without files of their own, files."""
    documents: list[Mapping[str, Any]] = []
    tensors, files = add_prefix(LEARNED, refits.tensors), dict[str, bytes]()
    for number, (model, resolved) in enumerate(zip(refits.models, refits.resolved, strict=True)):
        stored, outputs = store_model(model, resolved, rows)
        document, parts = dict(stored.document), dict(stored.tensors)
        if isinstance(resolved, BlackBox) and resolved.surrogate.own_trees is None:
            document["surrogate"] = SHARED
            parts.pop("surrogate")
        for name, state in parts.items():
            tensors |= add_prefix(f"{number}.{name}", state)
        files |= {_file_of(number, name): content for name, content in stored.files.items()}
        tensors[f"{OUTPUTS}.{number}"] = outputs
        documents.append(document)
    if any(document["stored"] is None for document in documents):
        files = {}
    document = {**refits.document, "models": documents}
    return StoredModel(document=document, tensors={"refits": tensors}, files=files)


def restore_refits(
    stored: StoredModel, given: Sequence[object] | None, like: TableModel, rows: SyntheticRows
) -> SavedRefits:
    """Return the retrained models that were stored or are given.

    Args:
        stored: What :func:`store_refits` returned.
        given: The models in the order in which they were saved; None to read the stored ones.
        like: The explained model, whose surrogate some of them share.
        rows: Synthetic rows.

    Raises:
        InvalidInputError: The models must be given, or there are more or fewer of them.
        ModelError: One of them is another model.
    """
    documents, tensors = stored.document["models"], stored.tensors["refits"]
    if given is None:
        _require_stored(documents)
    elif len(given) != len(documents):
        raise InvalidInputError(
            f"`retrain` must hold the {len(documents)} retrained models of the saved explainer, in the order "
            f"of `explainer.retrained_models`; got {len(given)}. Pass that list."
        )
    models, resolved = [], []
    for number, document in enumerate(documents):
        parts = {name: _with_prefix(tensors, f"{number}.{name}") for name in _PARTS}
        check_sizes(document.get("settings"), parts["network"], rows.encoder.layout.width)
        for name, state in parts.items():
            check_finite(name, state)
        file = document["stored"]
        here = {} if given is not None or file in (None, "network") else {file: _file_of(number, file)}
        files = {name: stored.files[there] for name, there in here.items()}
        own = StoredModel(document=document, tensors=parts, files=files)
        outputs = tensors[f"{OUTPUTS}.{number}"]
        name = f"Model {number} of `retrain`"
        shared = like.surrogate if isinstance(like, BlackBox) else None
        model, made = restore_model(
            own, None if given is None else given[number], rows, outputs, name=name, shared=shared
        )
        models.append(model)
        resolved.append(made)
    learned = _with_prefix(tensors, LEARNED)
    return SavedRefits(models=models, resolved=resolved, document=stored.document, tensors=learned)


def _require_stored(documents: Sequence[Mapping[str, Any]]) -> None:
    """Raise unless all models were stored."""
    missing = [document for document in documents if document["stored"] is None]
    if missing:
        raise InvalidInputError(
            f"The retrained models of this explainer, each a {missing[0]['class']}, are not stored with it: "
            f"{missing[0]['not_stored_because']}. Keep `explainer.retrained_models` and pass them: "
            "`Explainer.load(folder, model=model, retrain=models)`."
        )


def _file_of(number: int, name: str) -> str:
    return f"refit-{number:02d}{PurePath(name).suffix}"


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> TensorDict:
    """Return the tensors whose names start with a prefix, without it."""
    start = f"{prefix}."
    return {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
