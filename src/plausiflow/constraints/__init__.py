"""Rules that users write, and what they allow for a row."""

from plausiflow.constraints.allowance import Allowance
from plausiflow.constraints.compile import CompiledRules
from plausiflow.constraints.limits import Limits
from plausiflow.constraints.locks import LockedFeatures, locked_mask
from plausiflow.constraints.rule import Rule, rule_from_dict, rules_from_dicts
from plausiflow.constraints.rules import (
    Allowed,
    Decreasing,
    Immutable,
    Increasing,
    Linear,
    MaxChanges,
    Range,
)
from plausiflow.constraints.violations import RowChanges

__all__ = [
    "Allowance", "Allowed", "CompiledRules", "Decreasing", "Immutable", "Increasing", "Limits", "Linear",
    "LockedFeatures", "MaxChanges", "Range", "RowChanges", "Rule", "locked_mask", "rule_from_dict",
    "rules_from_dicts",
]  # fmt: skip
