"""Saved explainers: a directory of safetensors and versioned JSON; no pickle is ever read."""

from plausiflow.persistence.boosters import without_parameters
from plausiflow.persistence.estimators import Stored, restored
from plausiflow.persistence.files import DOCUMENT, ArtefactError, read, write_atomically
from plausiflow.persistence.probes import Origin
from plausiflow.persistence.saving import Parts, load, reading, save
from plausiflow.persistence.states import KINDS, Kinds, State, as_json, below, fingerprint

__all__ = [
    "DOCUMENT",
    "KINDS",
    "ArtefactError",
    "Kinds",
    "Origin",
    "Parts",
    "State",
    "Stored",
    "as_json",
    "below",
    "fingerprint",
    "load",
    "read",
    "reading",
    "restored",
    "save",
    "without_parameters",
    "write_atomically",
]
