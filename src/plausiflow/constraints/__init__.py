"""Rules that users write, and what they allow for a row."""

from plausiflow.constraints.allowance import Allowance
from plausiflow.constraints.bands import Bands
from plausiflow.constraints.compile import LOCKED, CompiledRules
from plausiflow.constraints.computed import Computed
from plausiflow.constraints.contradictions import add_rules
from plausiflow.constraints.encoded_clauses import EncodedClause, KeptPiece, LevelPiece, LinearPiece
from plausiflow.constraints.grid_step import GridStep
from plausiflow.constraints.implies import Implies
from plausiflow.constraints.known_pairs import Determines, NeverTogether
from plausiflow.constraints.learned import LearnedRule, LearnedRules
from plausiflow.constraints.limits import Limits
from plausiflow.constraints.linear_rules import Equal, Linear
from plausiflow.constraints.locks import LockedFeatures, locked_mask
from plausiflow.constraints.mining import learn_rules
from plausiflow.constraints.monotone import Decreasing, Increasing
from plausiflow.constraints.prices import Price
from plausiflow.constraints.repair import check_partners, partner_levels, repair_codes, repair_numbers
from plausiflow.constraints.rule import Rule, rule_from_dict, rules_from_dicts
from plausiflow.constraints.rules import Allowed, Immutable, MaxChanges, Range
from plausiflow.constraints.terms import Term
from plausiflow.constraints.violations import RowChanges
from plausiflow.constraints.when_changed import WhenChanged

__all__ = [
    "LOCKED", "Allowance", "Allowed", "Bands", "CompiledRules", "Computed", "Decreasing", "Determines",
    "EncodedClause", "Equal", "GridStep", "Immutable", "Implies", "Increasing", "KeptPiece", "LearnedRule",
    "LearnedRules", "LevelPiece", "Limits", "Linear", "LinearPiece", "LockedFeatures", "MaxChanges",
    "NeverTogether", "Price", "Range", "RowChanges", "Rule", "Term", "WhenChanged", "add_rules",
    "check_partners", "learn_rules", "locked_mask", "partner_levels", "repair_codes", "repair_numbers",
    "rule_from_dict", "rules_from_dicts",
]  # fmt: skip
