"""The explainer: tables in, explanations out; and how it is saved and loaded."""

from plausiflow.explainer.explainer import Explainer
from plausiflow.explainer.settings import with_checked_settings

__all__ = ["Explainer", "with_checked_settings"]
