"""Rules that users write, and what they allow for a row."""

from plausiflow.constraints.allowance import Allowance
from plausiflow.constraints.compile import LOCKED, CompiledRules
from plausiflow.constraints.grid_step import GridStep
from plausiflow.constraints.implies import Implies
from plausiflow.constraints.limits import Limits
from plausiflow.constraints.linear_rules import Equal, Linear
from plausiflow.constraints.locks import LockedFeatures, locked_mask
from plausiflow.constraints.monotone import Decreasing, Increasing
from plausiflow.constraints.prices import Price
from plausiflow.constraints.rule import Rule, rule_from_dict, rules_from_dicts
from plausiflow.constraints.rules import Allowed, Immutable, MaxChanges, Range
from plausiflow.constraints.violations import RowChanges
from plausiflow.constraints.when_changed import WhenChanged

__all__ = [
    "LOCKED", "Allowance", "Allowed", "CompiledRules", "Decreasing", "Equal", "GridStep", "Immutable",
    "Implies", "Increasing", "Limits", "Linear", "LockedFeatures", "MaxChanges", "Price", "Range",
    "RowChanges", "Rule", "WhenChanged", "locked_mask", "rule_from_dict", "rules_from_dicts",
]  # fmt: skip
