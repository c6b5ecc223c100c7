"""Certificates for the rows of a request: what is proven about their cheapest counterfactuals.

The program knows the model and the rules. The user's own model confirms every answer of the solver, on the
decoded row, and the rules are checked there, too. The density takes no part: a bound holds for plausible
and implausible rows alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import LOCKED, CompiledRules, Immutable
from plausiflow.core import TargetCriterion, Targets, verify
from plausiflow.exact import (
    Answer,
    Certificate,
    Proof,
    Prover,
    RuleItem,
    has_hidden_layers,
    is_installed,
    model_space,
)
from plausiflow.models import TableModel, UnsupportedModelError
from plausiflow.progress import progress_bar
from plausiflow.search.engine import Engine
from plausiflow.search.references import References
from plausiflow.search.request import SearchRequest
from plausiflow.tables import Encoder, Mask
from plausiflow.workers import Inline, Processes, Returned

RELAX_SHARE = 0.5
"""Share of the time that the fewest rules to relax may take after a proof that there is no answer."""
MOST_PROOFS, REASON_SECONDS, REASON_WORK = 20, 20.0, 0.3
"""Rows without an answer whose reason is proven, and seconds and deterministic time of the solver for each
program. The latter ends first, so that a reason does not depend on how busy the machine is."""


@dataclass(frozen=True, eq=False)
class RowTask:
    """A row to be certified.

    Attributes:
        row: The row of the table.
        x: The same row, encoded, shape ``(1, width)``.
        targets: Its target.
        locked: Features that it keeps, shape ``(1, features)``.
        known: The cost of its best answer; infinite without one.
    """

    row: pd.DataFrame
    x: Tensor
    targets: Targets
    locked: Mask | None
    known: float


@dataclass(frozen=True, eq=False)
class RowCertifier:
    """Certifies single rows; it can be sent to a worker process.

    Attributes:
        model: The user's model.
        encoder: Encoder of the table.
        rules: What may change.
        prover: Proves.
        seconds: Seconds for each row.
        work: Deterministic time of the solver for each program; None for no limit.
    """

    model: TableModel
    encoder: Encoder
    rules: CompiledRules
    prover: Prover
    seconds: float
    work: float | None = None

    def __call__(self, task: RowTask) -> Certificate:
        """Return the certificate of a row."""
        start = time.monotonic()
        proof = self.prove(task, self.prover, self.seconds)
        best = min(proof.cost, task.known)
        left = self.seconds - (time.monotonic() - start)
        if proof.infeasible:
            certificate = self._infeasible(task, left)
        elif proof.bound <= 0:
            certificate = Certificate(status="not_reached")
        else:
            optimal = best <= proof.bound * (1 + 1e-3) + 1e-9
            certificate = Certificate(status="optimal" if optimal else "bound", bound=min(proof.bound, best))
        return replace(certificate, seconds=time.monotonic() - start)

    def reason(self, task: RowTask) -> Certificate | None:
        """Return the certificate of a row that probably has no recourse; None if it may have some."""
        proof = self.prove(task, self.prover.without_margin(), self.seconds, at_once=True)
        return self.relaxed(task, RELAX_SHARE * self.seconds) if proof.infeasible else None

    def prove(
        self, task: RowTask, prover: Prover, seconds: float, *, reach: float = 0.0, at_once: bool = False
    ) -> Proof:
        """Return what is proven about a row; with ``reach``, about answers that keep away from cuts."""
        allowance = self.rules.for_rows(task.x, task.row, task.locked)

        def confirm(x_cf: Tensor) -> Answer:
            return self.answer(task, x_cf, prover.criterion)

        return prover.prove(
            task.row,
            allowance,
            task.targets,
            confirm,
            seconds,
            task.known,
            reach=reach,
            work=self.work,
            at_once=at_once,
        )

    @torch.no_grad()
    def answer(
        self, task: RowTask, x_cf: Tensor, criterion: TargetCriterion, without: Sequence[RuleItem] = ()
    ) -> Answer:
        """Return what model and rules say about a row, decoded, without some rules."""
        decoded = self.encoder.decode(x_cf, like=task.row, encoded=task.x)
        again = self.encoder.encode(decoded)
        before = task.row
        if self.encoder.missing == "impute":
            before = self.encoder.decode(task.x, like=task.row, encoded=task.x)
        names = {item.name for item in without if item.feature is None}
        if without:
            names |= {str(rule) for rule in self.rules.constraints if isinstance(rule, Immutable)} | {LOCKED}
        violations = self.rules.violations(before, decoded, task.locked)
        broken = violations.drop(columns=[name for name in violations if name in names])
        if not again.usable[0] or bool(broken.to_numpy().any()):
            return "not allowed"
        outputs = self.model.predict_outputs(again.x, decoded)
        decided = self.model.decide(outputs, again.x, decoded) if self.model.labels else None
        score = torch.zeros(1, dtype=torch.float64)
        valid = bool(verify(outputs, task.targets, criterion, score, decided).safely_valid[0])
        return "accepted" if valid else "another outcome"

    def _infeasible(self, task: RowTask, seconds: float) -> Certificate:
        """Return the certificate of a row without an answer that wins by the margin."""
        plain = self.prover.without_margin()
        proof = self.prove(replace(task, known=math.inf), plain, max(seconds, 0.1 * self.seconds))
        if not proof.infeasible:
            reason = f"allowed rows win by less than the margin of {self.prover.criterion.margin:g}"
            if proof.answer is None:
                reason = "a row that wins by less was not ruled out in time"
            return Certificate(status="bound", bound=math.inf, reason=reason)
        return self.relaxed(task, RELAX_SHARE * self.seconds)

    def relaxed(self, task: RowTask, seconds: float) -> Certificate:
        """Return the certificate of a row without recourse, with the fewest rules to relax."""

        def accepts(x_cf: Tensor, items: Sequence[RuleItem]) -> bool:
            return self.answer(task, x_cf, self.prover.criterion, items) == "accepted"

        found = self.prover.relax(
            self.rules, task.row, task.x, task.locked, task.targets, accepts, seconds, self.work
        )
        if found is None:
            reason = "no set of rules to relax was found in time"
            return Certificate(status="no_recourse", bound=math.inf, reason=reason)
        return Certificate(
            status="no_recourse",
            bound=math.inf,
            relax=tuple(item.name for item in found.items),
            relaxed_features=tuple(item.feature for item in found.items if item.feature is not None),
            reason="" if found.fewest else "fewer rules may be enough",
        )


@dataclass(frozen=True, eq=False)
class Certifier:
    """Certifies the rows of a request.

    Attributes:
        engine: What was fitted.
        encoder: Encoder of the table.
        request: The request, with the targets that were chosen.
    """

    engine: Engine
    encoder: Encoder
    request: SearchRequest

    @property
    def references(self) -> References:
        """Finds what sets rows apart from training rows that are decided as wanted."""
        return References(engine=self.engine, encoder=self.encoder, request=self.request)

    @cached_property
    def obstacle(self) -> str:
        """Why nothing can be proven about the model; empty if it can."""
        try:
            self._prover()
        except UnsupportedModelError as error:
            return str(error)
        return ""

    def _prover(self) -> Prover:
        engine = self.engine
        space = model_space(engine.model, engine.rules.layout)
        return Prover(space, engine.cost_model, engine.validity.criterion)

    def row_certifier(self, seconds: float, work: float | None = None) -> RowCertifier:
        """Return what certifies single rows; see :class:`RowCertifier`."""
        model = self.engine.model
        assert model is not None
        return RowCertifier(model, self.encoder, self.engine.rules, self._prover(), seconds, work)

    def run(
        self, rows: Sequence[int], known: Sequence[float], seconds: float, workers: int = 1
    ) -> list[Certificate]:
        """Return the certificates of some rows, each within some seconds, in worker processes if several.

        ``known`` is the cost of each row's best answer, infinite without one.

        Raises:
            MissingExtraError: OR-tools is not installed.
        """
        if self.obstacle:
            return [Certificate(status="not_possible", reason=self.obstacle) for _ in rows]
        prove = self.row_certifier(seconds)
        tasks = [self.task(row, cost) for row, cost in zip(rows, known, strict=True)]
        found = [Certificate(status="not_reached") for _ in rows]
        executor = Inline() if workers == 1 else Processes(workers=workers)
        with progress_bar("proving", len(tasks)) as advance:
            for event in executor.run(prove, tasks, lambda _: 0):
                if isinstance(event, Returned):
                    found[event.number] = event.result
                    advance(1, "")
        return found

    def task(self, row: int, known: float) -> RowTask:
        """Return a row of the request to be certified."""
        x, targets, frame, locked = self.request.part(torch.tensor([row]))
        return RowTask(frame.reset_index(drop=True), x, targets, locked, known)


def proven_reasons(engine: Engine, encoder: Encoder, request: SearchRequest, rows: Tensor) -> dict[int, str]:
    """Return the reasons of rows that are proven to have no answer, by row.

    Nothing is proven without the extra ``certify``, for networks with hidden layers, which take too long, or
    after the deadline of the request. What is proven about a row does not depend on the others.
    """
    certifier = Certifier(engine, encoder, request)
    if not is_installed() or not len(rows) or certifier.obstacle:
        return {}
    prover = certifier.row_certifier(REASON_SECONDS, REASON_WORK)
    reasons: dict[int, str] = {}
    if has_hidden_layers(prover.prover.space):
        return reasons
    for row in rows.tolist()[:MOST_PROOFS]:
        if request.late:
            break
        certificate = prover.reason(certifier.task(row, math.inf))
        if certificate is not None:
            reasons[row] = _describe(certificate)
    return reasons


def _describe(certificate: Certificate) -> str:
    """Return a proof that there is no answer as a reason."""
    text = "proven: no allowed row is decided as wanted by the model"
    if not certificate.relax:
        return text
    kept = certificate.relaxed_features
    if len(kept) == len(certificate.relax):
        return f"{text}; allow {' and '.join(f'`{name}`' for name in kept)} to change and there is one"
    return f"{text}; without {' and '.join(certificate.relax)} there is one"
