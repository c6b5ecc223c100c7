"""The paper's equations, what users may bring, problems and their solutions, training and metrics."""

from plausiflow.core.counterfactuals import Counterfactuals, concatenate
from plausiflow.core.frozen import Frozen
from plausiflow.core.gradients import validity_value_and_grad, value_and_grad
from plausiflow.core.losses import (
    cross_entropy,
    l1_distance,
    l2_distance,
    multiclass_validity_hinge,
    negative_log_likelihood,
    penalised,
    plausibility_value,
    published_logit_hinge,
    validity_hinge,
    validity_value,
)
from plausiflow.core.metrics import METRICS, Context, Variant, evaluate, real_rows
from plausiflow.core.prediction import predict, predict_proba
from plausiflow.core.protocols import (
    Classifier,
    Constraint,
    Density,
    HasValueAndGrad,
    Plausibility,
    Prepares,
    Problem,
    Pullback,
    Regressor,
    RowFunction,
    RowValueAndGrad,
    Solution,
    Solver,
    Starts,
)
from plausiflow.core.training import Training, check_classes, check_query, check_rows, local_seed, train
from plausiflow.core.verification import judge

__all__ = [
    "METRICS",
    "Classifier",
    "Constraint",
    "Context",
    "Counterfactuals",
    "Density",
    "Frozen",
    "HasValueAndGrad",
    "Plausibility",
    "Prepares",
    "Problem",
    "Pullback",
    "Regressor",
    "RowFunction",
    "RowValueAndGrad",
    "Solution",
    "Solver",
    "Starts",
    "Training",
    "Variant",
    "check_classes",
    "check_query",
    "check_rows",
    "concatenate",
    "cross_entropy",
    "evaluate",
    "judge",
    "l1_distance",
    "l2_distance",
    "local_seed",
    "multiclass_validity_hinge",
    "negative_log_likelihood",
    "penalised",
    "plausibility_value",
    "predict",
    "predict_proba",
    "published_logit_hinge",
    "real_rows",
    "train",
    "validity_hinge",
    "validity_value",
    "validity_value_and_grad",
    "value_and_grad",
]
