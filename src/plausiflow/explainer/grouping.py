"""Explain many rows with few actions.

Actions are chosen on a sample of the rows and then fixed; all rows are assigned to them in blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import Rule
from plausiflow.core import suitable_threads
from plausiflow.errors import InvalidInputError
from plausiflow.explainer.assigning import FixedActions, GroupCall, assign, group_request, rows_in_need
from plausiflow.groups import (
    FORMS,
    Actions,
    Budget,
    Form,
    GroupExplanations,
    LocalAnswers,
    choose_actions,
    needed_features,
    search_task,
)
from plausiflow.progress import verbosity
from plausiflow.search import Engine, SearchRequest, Target, finish_answers, search_rows
from plausiflow.validation import is_whole, to_float

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer

SAMPLE, DONORS = 500, 250
"""Rows that actions are chosen on, and rows whose counterfactuals propose actions."""


def explain_groups(
    explainer: Explainer,
    rows: pd.DataFrame,
    target: Target = "opposite",
    *,
    groups: int = 5,
    form: Form | Literal["auto"] = "auto",
    max_cost: float | None = None,
    mean_cost: float | None = None,
    min_probability: float | None = None,
    constraints: Sequence[Rule] = (),
    second_opinion: bool = True,
    verbose: bool | None = None,
) -> GroupExplanations:
    """Find a few actions that help as many rows as possible, and who takes which.

    An action fixes the changes that the decision needs. Other features of a member change only to keep it
    plausible and within the rules; they are solved for each row. Every member is verified by the model, the
    density and all rules. Rows without an action have a reason.

    Args:
        explainer: The fitted explainer.
        rows: Rows of the table.
        target: The wanted outcome, as for :meth:`explain`; "other" is not possible.
        groups: The largest number of actions, over all targets together.
        form: ``"shift"`` adds the same amounts, ``"reach"`` moves numbers to at least or at most a value,
            ``"direction"`` moves numbers in the same proportions, each row by its own size. ``"auto"``
            chooses among all three what covers most rows at the least cost.
        max_cost: The most that a member may cost; None for no limit.
        mean_cost: The most that the members may cost on average; None for no limit. Actions are chosen that
            help most rows within it. The cheapest members are taken, up to the limit that is then in
            ``result.limit``; :meth:`GroupExplanations.assign` keeps that limit.
        min_probability: As for :meth:`explain`.
        constraints: More rules for this call.
        second_opinion: Whether members keep the margin that ``confidence`` asks for.
        verbose: Whether to show progress; see :meth:`fit`.
    """
    _check(groups, form, max_cost, mean_cost)
    call = GroupCall(
        target=target, min_probability=min_probability, constraints=constraints, second_opinion=second_opinion
    )
    forms = FORMS if form == "auto" else (form,)
    with suitable_threads(rows), verbosity(verbose):
        engine, request, _ = group_request(explainer, rows, call)
        needing = rows_in_need(request)
        sample = _sample(needing, SAMPLE, int(explainer.random_state))
        budget = Budget(most=math.inf if max_cost is None else float(max_cost), mean=mean_cost)
        actions, most = _choose(explainer, engine, request, sample, forms, groups, budget)
    fixed = FixedActions(actions=actions, most=most, mean=mean_cost)
    return assign(explainer, call, fixed, rows)


def _check(groups: object, form: object, max_cost: object, mean_cost: object) -> None:
    if not is_whole(groups) or not 1 <= groups <= 1000:  # type: ignore[operator]
        raise InvalidInputError(
            f"`groups` must be a whole number from 1 to 1000; got {groups!r}. "
            "It is the largest number of actions."
        )
    for name, cost in (("max_cost", max_cost), ("mean_cost", mean_cost)):
        if cost is not None and not 0 < to_float(cost) < math.inf:
            raise InvalidInputError(
                f"`{name}` must be a number above 0, or None for no limit; got {cost!r}. It has the unit of "
                "the column `cost` of `actions`."
            )
    if form != "auto" and form not in FORMS:
        raise InvalidInputError(
            f"`form` must be 'auto', {', '.join(map(repr, FORMS))}; got {form!r}. Leave it out for 'auto'."
        )


def _sample(rows: Tensor, most: int, seed: int) -> Tensor:
    if len(rows) <= most:
        return rows
    places = np.random.default_rng(seed).choice(len(rows), most, replace=False)
    return rows[torch.from_numpy(np.sort(places))]


def _choose(
    explainer: Explainer,
    engine: Engine,
    request: SearchRequest,
    sample: Tensor,
    forms: Sequence[Form],
    groups: int,
    budget: Budget,
) -> tuple[Actions, float]:
    """Return the actions, and the most that a member may cost while rows are assigned to them."""
    encoder, _, _ = explainer._fitted()
    task, seed = search_task(engine, request, sample), int(explainer.random_state)

    def answer(places: Tensor) -> LocalAnswers:
        rows = sample[places]
        local = request.repeat(rows, request.targets[rows])
        found = finish_answers(engine, encoder, local, search_rows(engine, encoder, local, reasons=False))
        assert found.roles is not None
        needed = needed_features(engine.rules.layout, found.roles, len(found.of))
        return LocalAnswers(x_cf=found.x_cf, rows=places[found.of], needed=needed, cost=found.cost)

    donors = _sample(torch.arange(len(sample)), DONORS, seed)
    return choose_actions(task, engine.bank, answer, donors, forms, groups, budget, seed)
