"""What may change, and how: the rules people write, and what they allow in an encoded row."""

from plausiflow.constraints.allowance import Allowance
from plausiflow.constraints.checks import named_by
from plausiflow.constraints.compile import Rules
from plausiflow.constraints.linear import Relation, parse
from plausiflow.constraints.locks import Locked, locked_mask
from plausiflow.constraints.rules import (
    Allowed,
    Decreasing,
    Immutable,
    Increasing,
    Linear,
    MaxChanges,
    Range,
    Rule,
)
from plausiflow.constraints.rules_json import rule_from_dict, rules_from_dicts

__all__ = [
    "Allowance",
    "Allowed",
    "Decreasing",
    "Immutable",
    "Increasing",
    "Linear",
    "Locked",
    "MaxChanges",
    "Range",
    "Relation",
    "Rule",
    "Rules",
    "locked_mask",
    "named_by",
    "parse",
    "rule_from_dict",
    "rules_from_dicts",
]
