"""Proposals: actions that helped single rows, which may help many.

Each local counterfactual proposes what its row needs, and, if it changes few features, all that it changes.
Shifts are also proposed a little larger: what just helped one row then helps its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from plausiflow.groups.actions import MOST_FEATURES, Actions, Form, actions_of, needed_features
from plausiflow.search import SearchRequest, SearchResult
from plausiflow.tables import Layout

SCALES = (1.0, 1.15, 1.3, 1.6)
MOST_PROPOSALS = 600
"""Proposals whose effect on the sample is computed."""


def propose_actions(
    layout: Layout, request: SearchRequest, result: SearchResult, forms: Sequence[Form], seed: int
) -> Actions:
    """Return actions of the given forms, from local counterfactuals with the roles of their changes."""
    x, x_cf, y = request.encoded.x[result.of], result.x_cf, request.targets.y[result.of]
    changed = layout.changed(x_cf, x)
    assert result.roles is not None
    needed = needed_features(layout, result.roles, len(x_cf)) & changed
    needed = torch.where(needed.any(dim=1)[:, None], needed, changed)
    parts = []
    for features in (needed, changed):
        few = (features.sum(dim=1) <= MOST_FEATURES) & features.any(dim=1)
        own = actions_of(layout, x[few], x_cf[few], y[few], features[few])
        parts += [_variants(own, form) for form in forms]
    per_form = max(1, MOST_PROPOSALS // max(1, len(forms)))
    chosen = [
        _sample(Actions.concat(parts[i :: len(forms)]).unique(), per_form, seed) for i in range(len(forms))
    ]
    return Actions.concat(chosen)


def _variants(actions: Actions, form: Form) -> Actions:
    scales = SCALES if form != "direction" else (1.0,)
    return Actions.concat([actions.with_form(form, scale) for scale in scales])


def _sample(actions: Actions, most: int, seed: int) -> Actions:
    if len(actions) <= most:
        return actions
    places = np.random.default_rng(seed).choice(len(actions), most, replace=False)
    return actions[torch.from_numpy(np.sort(places))]


def pairs_of(actions: Actions, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return all pairs of rows with targets ``y`` and actions for these targets: rows, actions."""
    rows, which = (y[:, None] == actions.y[None]).nonzero(as_tuple=True)
    return rows, which
