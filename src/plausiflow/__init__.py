"""Plausible counterfactual explanations: the closest row a model decides otherwise and that could be real.

>>> import plausiflow as pf
>>> fold = pf.load_dataset("breast_cancer").fold(0)
>>> model = pf.LinearClassifier().fit(fold.x_train, fold.y_train)
>>> density = pf.KDE(bandwidth=0.2).fit(fold.x_train, fold.y_train)
>>> plausibility = pf.Thresholded(density=density).fit(fold.x_train, fold.y_train)
>>> method = pf.PPCEF(classifier=model, plausibility=plausibility, lower=0.0, upper=1.0)
>>> method = method.fit(fold.x_train, fold.y_train)
>>> method.explain(fold.x_test[:10])
Counterfactuals(10 rows, 10 found, 10 valid, 10 plausible)
"""

from plausiflow.constraints import (
    Allowed,
    Computed,
    Decreasing,
    Equal,
    GridStep,
    Immutable,
    Implies,
    Increasing,
    Linear,
    MaxChanges,
    Price,
    Range,
    WhenChanged,
)
from plausiflow.core import (
    Classifier,
    Constraint,
    Counterfactuals,
    Density,
    Plausibility,
    Problem,
    Regressor,
    Solution,
    Solver,
    Training,
    predict,
    predict_proba,
)
from plausiflow.datasets import load_dataset, load_table
from plausiflow.densities import GMM, KDE, ConditionalFlow, CrossFitEnsemble, Judges, Thresholded
from plausiflow.explainer import Explainer
from plausiflow.explanations import Audit, Explanation, Explanations
from plausiflow.groups import GroupExplanations
from plausiflow.methods import PPCEF, Method
from plausiflow.models import NODE, LinearClassifier, MLPClassifier, OnnxModel, TorchClassifier
from plausiflow.search import Bank
from plausiflow.solvers import SQP, PenaltyAdam
from plausiflow.suggestions import SuggestedRules, suggest_rules

__version__ = "0.2.0"

__all__ = [
    "GMM", "KDE", "NODE", "PPCEF", "SQP", "Allowed", "Audit", "Bank", "Classifier", "Computed",
    "ConditionalFlow", "Constraint", "Counterfactuals", "CrossFitEnsemble", "Decreasing", "Density",
    "Equal", "Explainer", "Explanation", "Explanations", "GridStep", "GroupExplanations", "Immutable",
    "Implies", "Increasing", "Judges", "Linear", "LinearClassifier", "MLPClassifier", "MaxChanges",
    "Method", "OnnxModel", "PenaltyAdam", "Plausibility", "Price", "Problem", "Range", "Regressor",
    "Solution", "Solver", "SuggestedRules", "Thresholded", "TorchClassifier", "Training", "WhenChanged",
    "load_dataset", "load_table", "predict", "predict_proba", "suggest_rules",
]  # fmt: skip
