"""Conditional densities, and the thresholds that turn them into verdicts."""

from plausiflow.densities.bayes import Outcome
from plausiflow.densities.calibration import PlausibilityWarning, calibrate
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.ensemble import CrossFitEnsemble
from plausiflow.densities.flows import ARCHITECTURES, FLOW_TRAINING, Architecture, ConditionalFlow
from plausiflow.densities.judges import Judges
from plausiflow.densities.kde import KDE
from plausiflow.densities.mixed import MixedDensity
from plausiflow.densities.mixture import GMM
from plausiflow.densities.row_scores import RowScores, assembled, columns_index
from plausiflow.densities.thresholds import Thresholded, quantile_of, row_value_and_grad, scorer_of

__all__ = [
    "ARCHITECTURES",
    "FLOW_TRAINING",
    "GMM",
    "KDE",
    "Architecture",
    "ConditionalFlow",
    "ContextThreshold",
    "CrossFitEnsemble",
    "Judges",
    "MixedDensity",
    "Outcome",
    "PlausibilityWarning",
    "RowScores",
    "Thresholded",
    "assembled",
    "calibrate",
    "columns_index",
    "quantile_of",
    "row_value_and_grad",
    "scorer_of",
]
