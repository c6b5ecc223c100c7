"""Iterations as CUDA graphs.

An iteration is about four hundred small operations. With few rows, launching them takes longer than running
them, so one iteration is recorded as a graph and replayed. A graph runs the same operations for every search;
searches that have ended are removed every few iterations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields, replace

import torch
from torch import Tensor

from plausiflow.core import Evaluation
from plausiflow.solvers.iteration import SQPState, StoppingCriteria

MAX_RECORDED = 65_536
"""More searches at once keep the device busy without a graph."""
FEW_SEARCHES, MANY_SEARCHES = 1_024, 16_384
"""Removing some of few searches saves no time and costs a recording; removing some of many saves time."""
REMOVE_EVERY = 6


class SearchBatch:
    """A batch of searches that iterate together; searches that have ended are removed."""

    def __init__(
        self, state: SQPState, evaluation: Evaluation, stopping: StoppingCriteria, *, record: bool = True
    ) -> None:
        self.state, self.evaluation, self.stopping = state, evaluation, stopping
        self._recorded: RecordedIteration | None = None
        self._record = record and state.x.is_cuda
        self._replays = 0

    def iterate(self) -> SQPState | None:
        """Run one iteration; return the ended searches if they were removed after it, else None."""
        if not self._record or len(self.state.rows) > MAX_RECORDED or self.evaluation.recordable is False:
            self.state.iterate(self.evaluation, self.stopping)
            return self.remove_ended()
        if self.evaluation.recordable is None:
            self.evaluation.recordable = self._try_uniform()
            return None
        if self._recorded is None:
            self._recorded = RecordedIteration(self.state, self.evaluation, self.stopping)
        self._recorded.replay()
        self._replays += 1
        return None if self._replays % REMOVE_EVERY else self.remove_ended()

    def _try_uniform(self) -> bool:
        """Run one iteration as it would be recorded; return whether the models never wait for the processor.

        If one does, the state stays as it was.
        """
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that this mode may miss some cases
            torch.cuda.set_sync_debug_mode("error")
            try:
                self.state.iterate(self.evaluation, replace(self.stopping, uniform=True))
            except RuntimeError:
                return False
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        return True

    def remove_ended(self) -> SQPState | None:
        """Remove ended searches and return them, if they are enough to be worth it."""
        active, n = int(self.state.active.sum()), len(self.state.rows)
        if self._recorded is None:
            share = 0.95
        elif n > FEW_SEARCHES:
            share = 0.7 if n > MANY_SEARCHES else 0.3
        else:
            share = 0.0
        if active > share * n:
            return None
        ended = self.state.select((~self.state.active).nonzero()[:, 0])
        self.state, self._recorded = self.state.select(self.state.active.nonzero()[:, 0]), None
        return ended


class RecordedIteration:
    """One iteration of a state as a graph; a replay changes the tensors of the state in place."""

    def __init__(self, state: SQPState, evaluation: Evaluation, stopping: StoppingCriteria) -> None:
        tensors: dict[str, Tensor] = {f.name: getattr(state, f.name) for f in fields(state)}
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            state.iterate(evaluation, replace(stopping, uniform=True))
            for name, before in tensors.items():
                after = getattr(state, name)
                if after is not before:
                    before.copy_(after)
        for name, before in tensors.items():
            setattr(state, name, before)
        self.replay: Callable[[], None] = graph.replay
