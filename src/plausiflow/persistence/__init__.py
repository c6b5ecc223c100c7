"""Saved explainers: a directory of safetensors and versioned JSON; no pickle is ever read."""

from plausiflow.persistence.files import ArtefactError
from plausiflow.persistence.probes import Origin
from plausiflow.persistence.saving import Parts, load, reading, save
from plausiflow.persistence.states import KINDS, Kinds

__all__ = ["KINDS", "ArtefactError", "Kinds", "Origin", "Parts", "load", "reading", "save"]
