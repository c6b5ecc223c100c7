"""Iterations on CUDA without the processor in between.

An iteration is some four hundred small operations. On few rows the device waits for each of them to be
launched, so that one iteration is recorded as a graph and then replayed as a whole. What is recorded takes
every search through the same operations; searches that have ended are only left out every few iterations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields, replace

import torch
from torch import Tensor

from plausiflow.core import Evaluation
from plausiflow.solvers.iteration import SQPState, StoppingCriteria

MOST_SEARCHES = 65_536
"""More searches at once keep the device busy as they are."""
FEW_SEARCHES, MANY_SEARCHES = 1_024, 16_384
"""So few cost no more than fewer: leaving some out would only cost a recording. So many cost more."""
BETWEEN_LOOKS = 6


class Running:
    """Searches on their way: one iteration after the other, and those that have ended are left out."""

    def __init__(
        self, state: SQPState, evaluation: Evaluation, stopping: StoppingCriteria, *, record: bool = True
    ) -> None:
        self.state, self.evaluation, self.stopping = state, evaluation, stopping
        self._recorded: Recorded | None = None
        self._record = record and state.x.is_cuda
        self._since_look = 0

    def iterate(self) -> SQPState | None:
        """One iteration of all; gives the searches that have ended when it is time to leave them out."""
        if not self._record or len(self.state.rows) > MOST_SEARCHES or self.evaluation.recordable is False:
            self.state.iterate(self.evaluation, self.stopping)
            return self._without_ended()
        if self.evaluation.recordable is None:
            self.evaluation.recordable = self._rehearse()
            return None
        if self._recorded is None:
            self._recorded = Recorded(self.state, self.evaluation, self.stopping)
        self._recorded.replay()
        self._since_look = (self._since_look + 1) % BETWEEN_LOOKS
        return None if self._since_look else self._without_ended()

    def _rehearse(self) -> bool:
        """An iteration as it would be recorded: whether models need no word from the processor on the way.

        Those that need one leave the state as it was.
        """
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this mode may not find everything
            torch.cuda.set_sync_debug_mode("error")
            try:
                self.state.iterate(self.evaluation, replace(self.stopping, whole=True))
            except RuntimeError:
                return False
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        return True

    def _without_ended(self) -> SQPState | None:
        active, n = int(self.state.active.sum()), len(self.state.rows)
        if self._recorded is None:
            share = 0.95
        elif n > FEW_SEARCHES:
            share = 0.7 if n > MANY_SEARCHES else 0.3
        else:
            share = 0.0
        if active > share * n:
            return None
        ended = self.state.only((~self.state.active).nonzero()[:, 0])
        self.state, self._recorded = self.state.only(self.state.active.nonzero()[:, 0]), None
        return ended


class Recorded:
    """One iteration of a state as a graph; replaying it changes the state's tensors in place."""

    def __init__(self, state: SQPState, evaluation: Evaluation, stopping: StoppingCriteria) -> None:
        own: dict[str, Tensor] = {f.name: getattr(state, f.name) for f in fields(state)}
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            state.iterate(evaluation, replace(stopping, whole=True))
            for name, before in own.items():
                after = getattr(state, name)
                if after is not before:
                    before.copy_(after)
        for name, before in own.items():
            setattr(state, name, before)
        self.replay: Callable[[], None] = graph.replay
