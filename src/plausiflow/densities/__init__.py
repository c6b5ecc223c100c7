"""Conditional densities, and the thresholds that turn them into verdicts."""

from plausiflow.densities.bayes import ClassLogProba
from plausiflow.densities.calibration import Calibratable, PlausibilityWarning, calibrate
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.ensemble import CrossFitEnsemble
from plausiflow.densities.flows import ARCHITECTURES, FLOW_TRAINING, Architecture, ConditionalFlow
from plausiflow.densities.judges import Judges
from plausiflow.densities.kde import KDE
from plausiflow.densities.learn import fit_plausibility, fit_with_judges
from plausiflow.densities.mixed import MixedDensity, fit_mixed
from plausiflow.densities.mixture import GMM
from plausiflow.densities.one_cycle import OneCycle
from plausiflow.densities.row_scores import PlainRowScores, row_scores
from plausiflow.densities.thresholds import Thresholded, lower_quantile

__all__ = [
    "ARCHITECTURES", "FLOW_TRAINING", "GMM", "KDE", "Architecture", "Calibratable", "ClassLogProba",
    "ConditionalFlow", "ContextThreshold", "CrossFitEnsemble", "Judges", "MixedDensity", "OneCycle",
    "PlainRowScores", "PlausibilityWarning", "Thresholded", "calibrate", "fit_mixed", "fit_plausibility",
    "fit_with_judges", "lower_quantile", "row_scores",
]  # fmt: skip
