"""Proposals: actions that helped single rows, which may help many.

Each local counterfactual proposes the one to four features that matter most to the decision, moved far enough
to change it alone; all features that the decision needs; those that change it together; and, if it changes
few features, all that it changes. Actions are also proposed a little larger: what just helped one row then
helps its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plausiflow.groups.actions import MOST_FEATURES, Actions, Form, actions_of
from plausiflow.search import SearchTask

SCALES = (1.0, 1.15, 1.3, 1.6)
LARGEST_SCALE = 4.0
MOST_PROPOSALS = 900
"""Proposals whose effect on the sample is computed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalAnswers:
    """Local counterfactuals of some rows of a task.

    Attributes:
        x_cf: Counterfactuals, shape ``(m, width)``.
        rows: Their rows of the task, shape ``(m,)``.
        needed: The features that the decision needs in each, shape ``(m, blocks)``.
        cost: What they cost, shape ``(m,)``.
    """

    x_cf: Tensor
    rows: Tensor
    needed: Tensor
    cost: Tensor

    def select(self, which: Tensor) -> LocalAnswers:
        """Return some of the counterfactuals, by a mask or by position."""
        return LocalAnswers(**{name: part[which] for name, part in vars(self).items()})


def propose_actions(task: SearchTask, local: LocalAnswers, forms: Sequence[Form], seed: int) -> Actions:
    """Return actions of the given forms, from local counterfactuals.

    Args:
        task: Rows and their targets.
        local: Local counterfactuals of some of the rows.
        forms: Forms of the actions.
        seed: Seed of the choice among too many proposals.
    """
    x_cf, rows, needed = local.x_cf, local.rows, local.needed
    layout, x, y = task.layout, task.x[rows], task.y_target[rows]
    changed = layout.changed(x_cf, x)
    needed = torch.where((needed & changed).any(dim=1)[:, None], needed & changed, changed)
    gains = _gains(task, x_cf, rows, changed)
    rank = torch.where(needed, gains, -torch.inf).argsort(dim=1, descending=True).argsort(dim=1)
    rng = np.random.default_rng(seed)
    parts = []
    subsets = [needed & (rank < count) for count in range(1, MOST_FEATURES + 1)]
    enough = _sufficient(task, x_cf, rows, changed, needed, gains)
    few = torch.where((changed.sum(dim=1) <= MOST_FEATURES)[:, None], changed, False)
    for features in [*subsets, needed, enough, few]:
        some = features.any(dim=1)
        lost = gains.sum(dim=1) / torch.where(features, gains, 0.0).sum(dim=1).clamp_min(1e-9)
        lost = torch.ones_like(lost) if features is enough else lost.clamp(1.0, LARGEST_SCALE)
        base = actions_of(layout, x[some], x_cf[some], y[some], features[some])
        parts.append((base, lost[some]))
    per_form = max(1, MOST_PROPOSALS // len(forms))
    return Actions.concat([_sample(_variants(parts, form, rng), per_form, rng) for form in forms])


def _gains(task: SearchTask, x_cf: Tensor, rows: Tensor, changed: Tensor) -> Tensor:
    """Return what each change adds to how far inside its target a counterfactual is, ``(m, blocks)``."""
    answer, block = changed.nonzero(as_tuple=True)
    columns = task.block_columns[block]
    undone = torch.where(columns, task.x[rows[answer]], x_cf[answer])
    value = task.model_value(x_cf, rows)
    gains = torch.zeros(changed.shape, dtype=x_cf.dtype)
    gains[answer, block] = (value[answer] - task.model_value(undone, rows[answer])).clamp_min(0)
    return gains


def _sufficient(
    task: SearchTask, x_cf: Tensor, rows: Tensor, changed: Tensor, needed: Tensor, gains: Tensor
) -> Tensor:
    """Return the needed changes and as many others, by their gains, as change the decision alone.

    With them fixed, the counterfactual itself is an answer. Shape ``(m, blocks)``.
    """
    first = torch.where(needed, torch.inf, torch.where(changed, gains, -torch.inf))
    rank = first.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    enough = torch.zeros_like(changed)
    for count in range(1, int(changed.sum(dim=1).max()) + 1 if len(changed) else 1):
        left = (~enough.any(dim=1)).nonzero()[:, 0]
        features = changed[left] & (needed[left] | (rank[left] < count))
        columns = (features.double() @ task.block_columns.double()) > 0
        partly = torch.where(columns, x_cf[left], task.x[rows[left]])
        fine = task.model_value(partly, rows[left]) >= 0
        enough[left[fine]] = features[fine]
    return enough


def _variants(parts: list[tuple[Actions, Tensor]], form: Form, rng: np.random.Generator) -> Actions:
    """Return actions that are large enough alone, each also a little larger; a direction has its own size."""
    found = []
    for actions, lost in parts:
        chosen = torch.from_numpy(rng.choice(SCALES, len(actions))) if form != "direction" else 1.0
        found += [actions.with_form(form, lost), actions.with_form(form, lost * chosen)]
    return Actions.concat(found).unique()


def _sample(actions: Actions, most: int, rng: np.random.Generator) -> Actions:
    if len(actions) <= most:
        return actions
    return actions[torch.from_numpy(np.sort(rng.choice(len(actions), most, replace=False)))]


def pairs_of(actions: Actions, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return all pairs of rows with targets ``y`` and actions for these targets: rows, actions."""
    rows, which = (y[:, None] == actions.y[None]).nonzero(as_tuple=True)
    return rows, which
