"""The engine: problems, targets, bank, candidates, search strategies, verification and verdicts."""

from plausiflow.search.answers import Answers, verify_candidates
from plausiflow.search.bank import Bank, Feasible
from plausiflow.search.black_box import FINAL_CORNERS, PROMISE
from plausiflow.search.candidates import Candidates
from plausiflow.search.certify import Certifier, RowCertifier, RowTask
from plausiflow.search.costs import DISTANCES, CostModel, Distance, absolute_deviations, feature_weights
from plausiflow.search.durability import Durability
from plausiflow.search.durability_fit import JURORS, fit_durability
from plausiflow.search.effort import EFFORTS, EffortName, check_effort
from plausiflow.search.engine import Engine
from plausiflow.search.estimate import announce_fit
from plausiflow.search.finish import finish_answers
from plausiflow.search.fit import (
    FitSettings,
    MakeMethod,
    SearchContext,
    TrainingRows,
    build_engine,
    log_proba_of,
    make_criterion,
    restore_engine,
)
from plausiflow.search.learn import learn_plausibility, monotone_features
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.pipeline import SearchResult, plausibility_scores, search_rows, search_targets
from plausiflow.search.problem import build_problem
from plausiflow.search.references import NeededDifferences
from plausiflow.search.request import (
    MOST_ANSWERS,
    ReadRows,
    SearchRequest,
    check_settings,
    predict_rows,
    prepare_request,
    read_rows,
)
from plausiflow.search.reweighted import RESTORING
from plausiflow.search.roles import (
    CERTAINTY,
    DECISION,
    DURABILITY,
    PLAUSIBILITY,
    TOLERANCE,
    ChangeRoles,
    settle_changes,
)
from plausiflow.search.rounding import put_on_grid
from plausiflow.search.sparsify import preferred, sparsify
from plausiflow.search.targets import (
    TABLE_POLICIES,
    Target,
    bin_outcomes,
    outcome_names,
    parse_target,
    predicted_labels,
    target_classes,
    targets_as_text,
)
from plausiflow.search.task import SearchTask
from plausiflow.search.tolerance import Tolerance, parse_tolerance, tolerant_share
from plausiflow.search.true_model import corners_of

__all__ = [
    "CERTAINTY",
    "DECISION",
    "DISTANCES",
    "DURABILITY",
    "EFFORTS",
    "FINAL_CORNERS",
    "JURORS",
    "MOST_ANSWERS",
    "PLAUSIBILITY",
    "PROMISE",
    "RESTORING",
    "TABLE_POLICIES",
    "TOLERANCE",
    "Answers",
    "Bank",
    "Candidates",
    "Certifier",
    "ChangeRoles",
    "CostModel",
    "Distance",
    "Durability",
    "EffortName",
    "Engine",
    "Feasible",
    "FitSettings",
    "MakeMethod",
    "MixedSearch",
    "NeededDifferences",
    "ReadRows",
    "RowCertifier",
    "RowTask",
    "SearchContext",
    "SearchRequest",
    "SearchResult",
    "SearchTask",
    "Target",
    "Tolerance",
    "TrainingRows",
    "absolute_deviations",
    "announce_fit",
    "bin_outcomes",
    "build_engine",
    "build_problem",
    "check_effort",
    "check_settings",
    "corners_of",
    "feature_weights",
    "finish_answers",
    "fit_durability",
    "learn_plausibility",
    "log_proba_of",
    "make_criterion",
    "monotone_features",
    "outcome_names",
    "parse_target",
    "parse_tolerance",
    "plausibility_scores",
    "predict_rows",
    "predicted_labels",
    "preferred",
    "prepare_request",
    "put_on_grid",
    "read_rows",
    "restore_engine",
    "search_rows",
    "search_targets",
    "settle_changes",
    "sparsify",
    "target_classes",
    "targets_as_text",
    "tolerant_share",
    "verify_candidates",
]  # fmt: skip
