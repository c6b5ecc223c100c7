"""Proposals of rules for a table, each with its reason, for a person to confirm."""

from plausiflow.suggestions.suggest import suggest_rules
from plausiflow.suggestions.suggested import SuggestedRules, Suggestion

__all__ = ["SuggestedRules", "Suggestion", "suggest_rules"]
