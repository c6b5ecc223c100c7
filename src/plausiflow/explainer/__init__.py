"""The explainer: tables in, explanations out; and how it is saved and loaded."""

from plausiflow.explainer.explainer import Explainer

__all__ = ["Explainer"]
