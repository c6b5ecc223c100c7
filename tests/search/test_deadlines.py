"""A time limit binds inside the search: rows that it had no time for are not reached."""

import time

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow import Explainer, LinearClassifier, PenaltyAdam
from plausiflow.core import Constraint, DeadlineError, Problem, check_deadline, deadline
from plausiflow.densities import KDE
from plausiflow.models import MLPClassifier
from plausiflow.search.request import SearchRequest
from plausiflow.solvers import SQP


def table(n=300, d=6):
    draw = np.random.default_rng(0)
    x = pd.DataFrame({f"f{j}": draw.normal(size=n).round(3) for j in range(d)})
    x["job"] = draw.choice(["clerk", "chef", "smith"], n)
    return x, np.where(x["f0"] + x["f1"] > 0, "yes", "no")


@pytest.fixture(scope="module")
def explainer():
    return Explainer(MLPClassifier(), density=KDE(), confidence=None, judges=0).fit(*table())


@pytest.mark.parametrize("solver", [SQP(), PenaltyAdam()], ids=["SQP", "Adam"])
def test_solvers_look_at_the_clock(solver):
    problem = Problem(x=torch.zeros(3, 2), constraints={"away": Constraint(lambda x, rows: x.sum(dim=1) - 1)})
    with deadline(time.monotonic() - 1), pytest.raises(DeadlineError):
        solver.solve(problem, None)


def test_a_deadline_ends_with_its_block_and_is_that_of_the_innermost_one():
    with deadline(time.monotonic() + 60):
        with deadline(time.monotonic() - 1), pytest.raises(DeadlineError):
            check_deadline()
        check_deadline()
    check_deadline()


def test_many_answers_of_many_rows_end_within_their_time(explainer):
    rows = table()[0].iloc[:100]
    start = time.process_time()
    result = explainer.explain(rows, k=48, time_limit=0.5)
    # Processor time: on a busy machine less of it passes than on the clock.
    assert time.process_time() - start < 0.5 + 1.0
    assert len(result) == 100
    statuses = result.status["status"]
    assert set(statuses) <= {"found", "infeasible", "not_reached"}
    assert (statuses == "not_reached").any()
    reasons = result.status["reason"][statuses == "not_reached"]
    assert set(reasons) == {"the time limit was over before this row was searched"}


class Clock:
    """Time that passes only when somebody looks at it."""

    def __init__(self):
        self.looks = 0

    def monotonic(self):
        self.looks += 1
        return float(self.looks)


def test_what_was_found_before_the_deadline_is_kept(explainer, monkeypatch):
    rows, clock = table()[0].iloc[:30], Clock()
    for module in ("plausiflow.core.deadlines.time", "plausiflow.search.request.time"):
        monkeypatch.setattr(module, clock)
    full = explainer.explain(rows)
    assert clock.looks == 1  # without a limit nobody looks after the start
    explainer.explain(rows, time_limit=1e9)
    result = explainer.explain(rows, time_limit=clock.looks // 2)
    found = (result.status["status"] == "found").to_numpy()
    assert 0 < found.sum() < 30
    pd.testing.assert_frame_equal(result.counterfactuals[found], full.counterfactuals[found])


def test_the_first_parts_are_small(explainer):
    frame = table()[0].iloc[:30]
    encoded = explainer.encoder_.encode(frame)
    request = SearchRequest(
        frame=frame, encoded=encoded, already=torch.zeros(30), targets=None, deadline=time.monotonic() + 60
    )
    assert [len(part) for part in request.in_time(torch.arange(30))] == [4, 8, 16, 2]
    assert [len(part) for part in SearchRequest(
        frame=frame, encoded=encoded, already=torch.zeros(30), targets=None
    ).in_time(torch.arange(30))] == [30]  # fmt: skip


def test_a_row_with_several_answers_keeps_those_found_in_time(monkeypatch):
    """The first search of a row is enough; further rounds only add answers."""
    from plausiflow.search import diverse

    explainer = Explainer(LinearClassifier(), density=KDE(), confidence=None, judges=0).fit(*table())
    rows = table()[0].iloc[:2]
    monkeypatch.setattr(diverse, "_restrict", late)
    result = explainer.explain(rows, k=3)
    assert (result.status["status"] == "found").all()
    assert (result.status["answers"] >= 1).all()


def late(task, forbidden):
    raise DeadlineError("over")
