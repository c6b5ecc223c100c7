"""The paper's equations, protocols, the optimisation problem, training, verification and metrics."""

from plausiflow.core.batches import (
    CPU_ROWS,
    FIRST_TIMED_ROWS,
    PAIRS,
    TIMED_ROWS,
    blocks,
    candidates_at_once,
    checked_at_once,
    rows_per_search,
    search_device,
    table_rows_per_search,
)
from plausiflow.core.counterfactuals import Counterfactuals, concatenate
from plausiflow.core.criterion import (
    TargetCriterion,
    Targets,
    ValidityConstraint,
    ValidityLoss,
    plausibility_constraint,
)
from plausiflow.core.deadlines import DEADLINE, DeadlineError, check_deadline, deadline
from plausiflow.core.durability import DurableCriterion, SummaryCriterion, tolerance_factor
from plausiflow.core.evaluation import Evaluated, Evaluation
from plausiflow.core.frozen import Frozen
from plausiflow.core.local_model import LocalModel
from plausiflow.core.losses import (
    cross_entropy,
    l1_distance,
    l2_distance,
    multiclass_validity_hinge,
    negative_log_likelihood,
    penalised,
    plausibility_hinge,
    plausibility_value,
    probability_value,
    published_logit_hinge,
    validity_hinge,
    validity_value,
    value_and_grad,
)
from plausiflow.core.metrics import METRICS, Context, Variant, evaluate, real_rows
from plausiflow.core.prediction import predict, predict_proba
from plausiflow.core.problem import (
    Constraint,
    ImprovingSolver,
    LastRows,
    MovingColumns,
    Problem,
    Race,
    RowFunction,
    RowValueAndGrad,
    Solution,
    Solver,
    Starts,
)
from plausiflow.core.protocols import (
    Classifier,
    Density,
    HasValueAndGrad,
    Plausibility,
    PreparesRows,
    Pullback,
    Regressor,
    RowScores,
    ScreensCandidates,
)
from plausiflow.core.threads import suitable_threads
from plausiflow.core.training import (
    Training,
    check_classes,
    check_query,
    check_rows,
    local_seed,
    train,
)
from plausiflow.core.verification import Verification, verify, verify_counterfactuals

__all__ = [
    "CPU_ROWS", "DEADLINE", "FIRST_TIMED_ROWS", "METRICS", "PAIRS", "TIMED_ROWS",
    "Classifier", "Constraint", "Context", "Counterfactuals", "DeadlineError", "Density",
    "DurableCriterion", "Evaluated", "Evaluation", "Frozen", "HasValueAndGrad", "ImprovingSolver",
    "LastRows", "LocalModel", "MovingColumns", "Plausibility", "PreparesRows", "Problem", "Pullback",
    "Race", "Regressor", "RowFunction", "RowScores", "RowValueAndGrad", "ScreensCandidates", "Solution",
    "Solver", "Starts", "SummaryCriterion", "TargetCriterion", "Targets", "Training",
    "ValidityConstraint", "ValidityLoss", "Variant", "Verification", "blocks", "candidates_at_once",
    "check_classes", "check_deadline", "check_query", "check_rows", "checked_at_once", "concatenate",
    "cross_entropy", "deadline", "evaluate", "l1_distance", "l2_distance", "local_seed",
    "multiclass_validity_hinge", "negative_log_likelihood", "penalised", "plausibility_constraint",
    "plausibility_hinge", "plausibility_value", "predict", "predict_proba", "probability_value",
    "published_logit_hinge", "real_rows", "rows_per_search", "search_device", "suitable_threads",
    "table_rows_per_search", "tolerance_factor", "train", "validity_hinge", "validity_value",
    "value_and_grad", "verify", "verify_counterfactuals",
]  # fmt: skip
