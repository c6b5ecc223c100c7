"""Few actions for many rows: shared changes, who takes which, and who is left out."""

from plausiflow.groups.actions import FORMS, Actions, Form, needed_features
from plausiflow.groups.assignment import Assigned, assign_rows, search_task
from plausiflow.groups.budget import Budget, mean_limit
from plausiflow.groups.choice import choose_actions
from plausiflow.groups.cover import greedy_cover, swap_actions
from plausiflow.groups.proposals import LocalAnswers, propose_actions
from plausiflow.groups.result import FORMAT, KIND, GroupExplanations
from plausiflow.groups.tree import MembershipTree, describe_membership

__all__ = [
    "FORMAT", "FORMS", "KIND", "Actions", "Assigned", "Budget", "Form", "GroupExplanations",
    "LocalAnswers", "MembershipTree", "assign_rows", "choose_actions", "describe_membership", "greedy_cover",
    "mean_limit", "needed_features", "propose_actions", "search_task", "swap_actions",
]  # fmt: skip
