"""Explain many rows with few actions.

Actions are chosen on a sample of the rows and then fixed; all rows are assigned to them in blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import Rule
from plausiflow.core import suitable_threads
from plausiflow.errors import InvalidInputError
from plausiflow.explainer.formats import Table, in_format, read_rows_for
from plausiflow.explainer.results import build_explanations
from plausiflow.groups import (
    FORMS,
    Actions,
    Form,
    GroupExplanations,
    MembershipTree,
    assign_rows,
    choose_actions,
    describe_membership,
    needed_features,
    propose_actions,
    search_task,
)
from plausiflow.models import count_model_calls
from plausiflow.progress import verbosity
from plausiflow.search import (
    Engine,
    ReadRows,
    SearchRequest,
    SearchResult,
    Target,
    finish_answers,
    prepare_request,
    search_rows,
)
from plausiflow.tables import read_values
from plausiflow.validation import is_whole

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer

SAMPLE, DONORS = 500, 250
"""Rows that actions are chosen on, and rows whose counterfactuals propose actions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Call:
    """The arguments of a call of ``explain_groups`` that assigned rows share."""

    target: Target
    min_probability: float | None
    constraints: Sequence[Rule]
    second_opinion: bool


def explain_groups(
    explainer: Explainer,
    rows: Table,
    target: Target = "opposite",
    *,
    groups: int = 5,
    form: Form | Literal["auto"] = "auto",
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
        rows: Rows of the table, as for :meth:`explain`.
        target: The wanted outcome, as for :meth:`explain`; "other" is not possible.
        groups: The largest number of actions, over all targets together.
        form: ``"shift"`` adds the same amounts, ``"reach"`` moves numbers to at least or at most a value,
            ``"direction"`` moves numbers in the same proportions, each row by its own size. ``"auto"``
            chooses among all three what covers most rows at the least cost.
        min_probability: As for :meth:`explain`.
        constraints: More rules for this call.
        second_opinion: Whether members keep the margin that ``confidence`` asks for.
        verbose: Whether to show progress; see :meth:`fit`.
    """
    _check(groups, form)
    frame, table_format = read_rows_for(explainer, rows)
    call = _Call(
        target=read_values(target),
        min_probability=min_probability,
        constraints=constraints,
        second_opinion=second_opinion,
    )
    forms = FORMS if form == "auto" else (form,)
    with suitable_threads(frame), verbosity(verbose):
        engine, request, _ = _request(explainer, frame, call)
        needing = _needing(request)
        sample = _sample(needing, SAMPLE, int(explainer.random_state))
        chosen = _choose(explainer, engine, request, sample, forms, groups)
    return in_format(_assign(explainer, call, chosen, None, frame), table_format)


def _check(groups: object, form: object) -> None:
    if not is_whole(groups) or not 1 <= groups <= 1000:  # type: ignore[operator]
        raise InvalidInputError(
            f"`groups` must be a whole number from 1 to 1000; got {groups!r}. "
            "It is the largest number of actions."
        )
    if form != "auto" and form not in FORMS:
        raise InvalidInputError(
            f"`form` must be 'auto', {', '.join(map(repr, FORMS))}; got {form!r}. Leave it out for 'auto'."
        )


def _request(explainer: Explainer, rows: pd.DataFrame, call: _Call) -> tuple[Engine, SearchRequest, ReadRows]:
    encoder, model, engine = explainer._fitted()
    request, choices, read = prepare_request(
        encoder,
        model,
        explainer.criterion_,
        rows,
        call.target,
        min_probability=call.min_probability,
        k=1,
        locked=None,
        time_limit=None,
        relaxed=False,
        second_opinion=call.second_opinion,
        diagnose=False,
        device="cpu",
    )
    if len(choices) > 1 and choices[0].low is None:
        raise InvalidInputError(
            "`target` must name one outcome for each row; got 'other'. Use 'runner_up', or name the outcome."
        )
    return replace(engine.with_rules(call.constraints), device="cpu"), request, read


def _needing(request: SearchRequest) -> Tensor:
    """Return the positions of the rows that can be read and need an action."""
    return torch.from_numpy((request.encoded.usable & ~request.already.numpy()).nonzero()[0])


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
) -> Actions:
    encoder, _, _ = explainer._fitted()

    def propose(places: Tensor) -> Actions:
        rows = sample[places]
        local = request.repeat(rows, request.targets[rows])
        found = finish_answers(engine, encoder, local, search_rows(engine, encoder, local, reasons=False))
        assert found.roles is not None
        needed = needed_features(engine.rules.layout, found.roles, len(found.of))
        own = search_task(engine, request, rows)
        return propose_actions(own, found.x_cf, found.of, needed, forms, int(explainer.random_state))

    donors = _sample(torch.arange(len(sample)), DONORS, int(explainer.random_state))
    return choose_actions(search_task(engine, request, sample), engine.bank, propose, donors, groups)


def _assign(
    explainer: Explainer, call: _Call, actions: Actions, membership: MembershipTree | None, rows: Table
) -> GroupExplanations:
    """Assign rows to actions; without a known membership, describe it from these rows."""
    rows, table_format = read_rows_for(explainer, rows)
    with suitable_threads(rows), count_model_calls() as counted:
        engine, request, read = _request(explainer, rows, call)
        encoder, _, _ = explainer._fitted()
        needing = _needing(request)
        assigned = assign_rows(engine, encoder, request, actions, needing)
        status = np.where(request.already.numpy(), "already", "infeasible").astype(object)
        status[~request.encoded.usable] = "invalid_input"
        status[assigned.action >= 0] = "found"
        reason = np.where(request.encoded.usable, assigned.reason, request.encoded.problems)
        answers = assigned.answers
        found = SearchResult(
            status=status,
            reason=reason,
            of=answers.of,
            x_cf=answers.x_cf,
            decoded=answers.decoded,
            cost=answers.cost,
            score=answers.score,
            misses=request.frame.iloc[:0],
            misses_of=np.empty(0, dtype=np.int64),
            misses_why=[],
            roles=assigned.roles,
        )
        rules = [*explainer.constraints, *call.constraints]
        explanations = build_explanations(explainer, engine, request, found, read, counted, rules)
        action = np.where(explanations.is_found, assigned.action + 1, 0)
        if membership is None:
            own = needing.numpy()
            membership = describe_membership(encoder, request.encoded.x[needing], action[own] - 1)
    result = GroupExplanations(
        explanations=explanations,
        shared=actions,
        action=action,
        membership=membership,
        encoder=encoder,
        assigner=partial(_assign, explainer, call, actions, membership),
    )
    return in_format(result, table_format)
