"""What each change of an answer is for.

A change is *needed* if the model no longer decides as wanted once it alone is undone. Any other change
accompanies the needed ones: undone, the answer breaks a rule, is less plausible than it must be, or is
decided with too little to spare. A change that nothing needs is undone. A change is *adverse* if, made alone,
it takes the row farther from the target. Everything is asked of the user's own model on rows of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import LOCKED, MaxChanges
from plausiflow.core import Targets, check_deadline
from plausiflow.densities import row_scores
from plausiflow.search.answers import Answers
from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.search.engine import Engine
from plausiflow.search.request import SearchRequest
from plausiflow.search.sparsify import LESS
from plausiflow.tables import Encoder, IntArray, Mask, ObjectArray

DECISION, PLAUSIBILITY, DURABILITY, CERTAINTY = "decision", "plausibility", "durability", "certainty"
"""What a change serves, if it is not a rule: without it the decision is another one, the row is not plausible
enough, retrained models may decide otherwise, or the decision is too close."""
NOTHING, TOLERANCE = "", "tolerance"


@dataclass(frozen=True, eq=False)
class ChangeRoles:
    """The changes of answers, ordered by answer, then by feature.

    Attributes:
        answer: Position of the answer, shape ``(c,)``.
        feature: Name of the feature, objects, shape ``(c,)``.
        serves: What it serves: ``decision``, ``plausibility``, ``durability``, ``certainty``, ``tolerance``,
            or a rule as people write it; objects, shape ``(c,)``.
        adverse: Whether the change alone takes the row farther from its target, bool, shape ``(c,)``.
    """

    answer: IntArray
    feature: ObjectArray
    serves: ObjectArray
    adverse: Mask

    @property
    def needed(self) -> Mask:
        """Whether the decision needs the change, shape ``(c,)``."""
        return np.asarray(self.serves == DECISION, dtype=np.bool_)

    def select(self, answers: Tensor) -> ChangeRoles:
        """Return the changes of some answers, which are counted again, in the given order."""
        first = np.searchsorted(self.answer, answers.numpy())
        count = np.searchsorted(self.answer, answers.numpy(), side="right") - first
        number = np.repeat(np.arange(len(first)), count)
        place = np.arange(len(number)) - np.repeat(np.cumsum(count) - count, count) + first[number]
        return ChangeRoles(number, self.feature[place], self.serves[place], self.adverse[place])

    @classmethod
    def concat(cls, parts: Sequence[ChangeRoles], counts: Sequence[int]) -> ChangeRoles:
        """Return the changes of all answers; ``counts`` are the numbers of answers of the parts."""
        before = np.cumsum([0, *counts])[:-1]
        answer = [part.answer + start for part, start in zip(parts, before.tolist(), strict=True)]
        return cls(
            np.concatenate(answer),
            np.concatenate([part.feature for part in parts]),
            np.concatenate([part.serves for part in parts]),
            np.concatenate([part.adverse for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class Settled:
    """Answers in which every change serves something, and what."""

    answers: Answers
    roles: ChangeRoles

    def select(self, which: Tensor) -> Settled:
        """Return some of the answers, by position."""
        return Settled(self.answers.select(which), self.roles.select(which))

    @classmethod
    def concat(cls, encoder: Encoder, frame: pd.DataFrame, parts: Sequence[Settled]) -> Settled:
        """Return all answers, ordered by row and cost; equal ones once."""
        roles = ChangeRoles.concat([part.roles for part in parts], [len(part.answers.of) for part in parts])
        of, cost, x = (
            torch.cat([getattr(part.answers, name) for part in parts]) for name in ("of", "cost", "x_cf")
        )
        order = torch.argsort(cost, stable=True)
        order = order[torch.argsort(of[order], stable=True)]
        first = Candidates(rows=of[order], x=x[order], cost=cost[order]).first_occurrences()
        joined = Answers.concat(encoder, frame, [part.answers for part in parts])
        return cls(joined.select(first), roles.select(order[first]))


@torch.no_grad()
def settle_changes(
    engine: Engine,
    encoder: Encoder,
    request: SearchRequest,
    answers: Answers,
    *,
    undo: bool = True,
    most: int | None = None,
) -> Settled:
    """Undo the changes that nothing needs, the most expensive one of an answer first; return the roles.

    Answers that have become equal are kept once. With ``undo=False`` all stay as they are. Answers with
    more than ``most`` changes that the decision needs stay as they are, too: such a change hardly becomes
    spare, as one that a rule or the plausibility needs does once another one is undone.
    """
    done: list[Settled] = []
    adverse: Tensor | None = None
    while True:
        trial = _Undone.of(engine, encoder, request, answers)
        # A change alone is the same, whatever else an answer changes.
        adverse = trial.adverse() if adverse is None else adverse
        roles = trial.roles(adverse, undo=undo)
        spare = torch.from_numpy(roles.serves == NOTHING) & undo
        if most is not None:
            lasting = torch.from_numpy(roles.serves == DECISION)
            needed = torch.bincount(trial.answer[lasting], minlength=len(answers.of))
            spare &= needed[trial.answer] <= most
        if not bool(spare.any()):
            done.append(Settled(answers, roles))
            return Settled.concat(encoder, request.frame, done) if len(done) > 1 else done[0]
        of_answer = torch.from_numpy(roles.answer)
        cost = torch.where(spare, trial.answers.cost, torch.inf)
        # The cheapest row without one change is the one without its most expensive change.
        chosen = cheapest(of_answer, cost, 1)
        chosen = chosen[spare[chosen]]
        kept = torch.ones(len(answers.of), dtype=torch.bool).index_fill(0, of_answer[chosen], False)
        done.append(Settled(answers, roles).select(kept.nonzero()[:, 0]))
        answers, adverse = trial.answers.select(chosen), adverse[of_answer[chosen]]


@dataclass(frozen=True, eq=False)
class _Undone:
    """Answers with one change undone each.

    Attributes:
        engine: What was fitted.
        encoder: Encoder of the table.
        request: The request.
        original: The answers.
        answer: The answer of each, shape ``(c,)``.
        block: The feature that is undone, by position, shape ``(c,)``.
        answers: The answers without the change.
        broken: The rules that each then breaks.
        changed: The rows with this change alone, encoded.
        tables: The rows and the answers as tables, one for each change.
    """

    engine: Engine
    encoder: Encoder
    request: SearchRequest
    original: Answers
    answer: Tensor
    block: Tensor
    answers: Answers
    broken: pd.DataFrame
    changed: Tensor
    tables: tuple[pd.DataFrame, pd.DataFrame]

    @classmethod
    def of(cls, engine: Engine, encoder: Encoder, request: SearchRequest, original: Answers) -> _Undone:
        layout = engine.rules.layout
        x = request.encoded.x[original.of]
        answer, block = layout.changed(original.x_cf, x).nonzero(as_tuple=True)
        names = [layout.blocks[j].name for j in block.tolist()]
        of = original.of[answer]
        own, targets, before, locked = request.part(of)
        after = original.decoded.iloc[answer.numpy()]
        before, after = before.reset_index(drop=True), after.reset_index(drop=True)
        undone = _swap(after, before, names)
        x_cf = original.x_cf[answer]
        where = layout.index(own.device).block_columns.mT[block] > 0
        if before.dtypes.equals(after.dtypes[before.columns]):
            # The encoding of a cell depends on the cell and the dtype of its column only.
            encoded, changed = torch.where(where, own, x_cf), torch.where(where, x_cf, own)
        else:
            encoded = encoder.encode(undone).x
            changed = encoder.encode(_swap(before, after, names)).x
        filled = encoder.decode(own, like=before, encoded=own) if encoder.missing == "impute" else before
        scores = row_scores(engine.plausibility, own, targets.y, with_margin=False)
        cost = engine.cost_model((own, layout.codes(own)), (encoded, layout.codes(encoded)))
        broken = engine.rules.violations(filled, undone, locked)
        # An undone change never exceeds a limit on the number of changes.
        limits = [str(rule) for rule in engine.rules.constraints if isinstance(rule, MaxChanges)]
        return cls(
            engine=engine,
            encoder=encoder,
            request=request,
            original=original,
            answer=answer,
            block=block,
            answers=Answers(of, encoded, undone, cost, scores.score(encoded, torch.arange(len(of)))),
            broken=broken.drop(columns=limits, errors="ignore"),
            changed=changed,
            tables=(before, after),
        )

    @property
    def feature(self) -> list[str]:
        """The names of the features that are undone."""
        blocks = self.engine.rules.layout.blocks
        return [blocks[j].name for j in self.block.tolist()]

    def roles(self, adverse: Tensor, *, undo: bool) -> ChangeRoles:
        """Ask the model, and tell what each change serves; what nothing needs may be undone.

        ``adverse`` are the adverse changes, shape ``(answers, features)`` bool.
        """
        if len(self.answer) == 0:
            none = np.empty(0, dtype=object)
            return ChangeRoles(self.answer.numpy(), none, none, np.empty(0, dtype=bool))
        check_deadline()
        engine, of = self.engine, self.answers.of
        x, targets, _, _ = self.request.part(of)
        verified = engine.verify(self.answers.x_cf, self.answers.decoded, targets, self.answers.score)
        # A decision that is less certain than asked for is still the same decision.
        asked = targets.min_probability
        decided = verified.valid if asked is None else verified.decided == targets.y
        margin = row_scores(engine.plausibility, x, targets.y).margin
        had = self.original.score[self.answer]
        # An answer without the margin, or a relaxed one, need not become more plausible than it is.
        required = torch.where(had >= margin, margin, torch.minimum(had, torch.zeros_like(had)))
        broken, score = self.broken.to_numpy(bool), self.answers.score
        lost = self._loses_durability(targets)
        rules = np.array(
            ["a locked feature" if name == LOCKED else str(name) for name in self.broken.columns],
            dtype=object,
        )
        serves = np.select(
            [
                ~decided.numpy(),
                broken.any(axis=1),
                (score < required).numpy(),
                lost.numpy(),
                ~verified.safely_valid.numpy(),
            ],
            [DECISION, rules[broken.argmax(axis=1)], PLAUSIBILITY, DURABILITY, CERTAINTY],
            default=NOTHING if undo or self.request.tolerance is None else TOLERANCE,
        ).astype(object)
        features = np.array(self.feature, dtype=object)
        return ChangeRoles(self.answer.numpy(), features, serves, adverse[self.answer, self.block].numpy())

    def _loses_durability(self, targets: Targets) -> Tensor:
        """Return which answers last only with the change, shape ``(c,)`` bool.

        An answer that cannot last as asked for shall still last as well as it does.
        """
        durability = self.engine.durability
        if durability is None:
            return torch.zeros_like(self.answer, dtype=torch.bool)
        with_change = self.original.decoded.iloc[self.answer.numpy()]
        model = self.engine.model
        before = durability.reserve(model, self.original.x_cf[self.answer], with_change, targets)
        after = durability.reserve(model, self.answers.x_cf, self.answers.decoded, targets)
        return after < before.clamp_max(0) - LESS

    def adverse(self) -> Tensor:
        """Return which changes alone take their row farther from the target, ``(answers, features)`` bool."""
        adverse = torch.zeros(len(self.original.of), len(self.engine.rules.layout.blocks), dtype=torch.bool)
        if len(self.answer):
            adverse[self.answer, self.block] = self._goes_farther()
        return adverse

    def _goes_farther(self) -> Tensor:
        """Return whether each change alone takes its row farther from the target, shape ``(c,)``."""
        check_deadline()
        rows, own = self.answers.of.unique(return_inverse=True)
        targets = self.request.targets[torch.cat([rows, self.answers.of])]
        x = torch.cat([self.request.encoded.x[rows], self.changed])
        model, criterion = self.engine.model, replace(self.engine.validity.criterion, margin=0.0)
        frames = None
        if model is not None and (model.true_outputs is not None or not model.labels):
            before, changed = self.request.frame.iloc[rows.numpy()], _swap(*self.tables, self.feature)
            frames = pd.concat([before, changed], ignore_index=True)
        outputs = self.engine.validity.outputs(x) if model is None else model.predict_outputs(x, frames)
        value = criterion.value(outputs, targets)
        return value[len(rows) :] < value[own] - LESS


def _swap(frame: pd.DataFrame, other: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return rows with one cell each, by name, of another table of the same rows."""
    swapped, where = frame.copy(deep=False), np.array(names, dtype=object)
    for name in dict.fromkeys(names):
        column, cells, some = frame[name], other[name], where == name
        if column.dtype != cells.dtype:
            column, cells = column.astype(object), cells.astype(object)
        values = column.array.copy()
        values[some] = cells.array[some]
        swapped[name] = pd.Series(values, frame.index, values.dtype, copy=False)
    return swapped
