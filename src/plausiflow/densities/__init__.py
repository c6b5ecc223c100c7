"""Conditional densities, and the thresholds that turn them into verdicts."""

from plausiflow.densities.ensemble import CrossFitEnsemble
from plausiflow.densities.flows import ConditionalFlow
from plausiflow.densities.kde import KDE
from plausiflow.densities.mixture import GMM
from plausiflow.densities.published import PublishedMAF
from plausiflow.densities.thresholds import Thresholded

__all__ = ["GMM", "KDE", "ConditionalFlow", "CrossFitEnsemble", "PublishedMAF", "Thresholded"]
