"""The search for counterfactuals of a table."""

from plausiflow.search.alternatives_of_target import cheapest_of
from plausiflow.search.black_box import FINAL_CORNERS, PROMISE
from plausiflow.search.criterion import TargetCriterion, Targets
from plausiflow.search.engine import Engine
from plausiflow.search.fit import (
    Rows,
    SearchContext,
    Settings,
    build_engine,
    densities,
    monotone,
    outcome_of,
    restore_engine,
    weights_of,
)
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.pipeline import SearchRequest, SearchResult
from plausiflow.search.requests import (
    MOST_ANSWERS,
    check_asked,
    check_settings,
    read_rows,
    scores,
    with_rules,
)
from plausiflow.search.targets import (
    Target,
    answers_as_text,
    binned,
    parse_target,
    target_classes,
    targets_as_text,
)
from plausiflow.search.task import Candidates
from plausiflow.search.true_model import at_corners

__all__ = [
    "FINAL_CORNERS",
    "MOST_ANSWERS",
    "PROMISE",
    "Candidates",
    "Engine",
    "MixedSearch",
    "Rows",
    "SearchContext",
    "SearchRequest",
    "SearchResult",
    "Settings",
    "Target",
    "TargetCriterion",
    "Targets",
    "answers_as_text",
    "at_corners",
    "binned",
    "build_engine",
    "cheapest_of",
    "check_asked",
    "check_settings",
    "densities",
    "monotone",
    "outcome_of",
    "parse_target",
    "read_rows",
    "restore_engine",
    "scores",
    "target_classes",
    "targets_as_text",
    "weights_of",
    "with_rules",
]
