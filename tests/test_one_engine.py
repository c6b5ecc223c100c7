"""One engine: the paper's equations are what runs, and a row crosses few borders between packages."""

import inspect
import re
import sys
from collections import Counter
from dataclasses import replace
from types import FrameType

import numpy as np
import pandas as pd
import pytest
import torch

import plausiflow as pf
from plausiflow.core import losses

MOST_CALLS = 205
"""Calls between packages for one row, about 30 of them for the roles of its changes and 15 for the cheapest
numbers of a sparse answer; before there was one engine the same rows made 400 to 412."""


@pytest.fixture(scope="module")
def numbers() -> tuple[pf.Explainer, pd.DataFrame]:
    """An explainer of a linear model of two numbers, and rejected rows; one was explained before."""
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), columns=["a", "b"])
    y = (x["a"] + x["b"] > 0).map({True: "granted", False: "rejected"})
    explainer = pf.Explainer(pf.LinearClassifier(), confidence=None, judges=0).fit(x, y)
    rejected = x[explainer.predict(x) == "rejected"]
    explainer.explain(rejected.iloc[[2]], "granted")
    return explainer, rejected


def traced(run, seen) -> None:
    """Run a function, and show ``seen`` every frame that is entered."""

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            seen(frame)

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)


def tagged_functions() -> set[str]:
    functions = inspect.getmembers(losses, inspect.isfunction)
    return {name for name, function in functions if "PPCEF Eq" in (function.__doc__ or "")}


def test_every_equation_is_executed_when_rows_are_explained(numbers):
    explainer, rejected = numbers
    square = torch.rand(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    executed: set[str] = set()
    methods = []
    for classes in ((square.sum(1) > 1).long(), (3 * square[:, 0]).long().clamp_max(2)):
        model = pf.LinearClassifier().fit(square, classes)
        density = pf.KDE(bandwidth=0.2).fit(square, classes)
        both = {"classifier": model, "plausibility": pf.Thresholded(density=density).fit(square, classes)}
        methods += [pf.PPCEF(**both), pf.PPCEF(**both, solver=pf.PenaltyAdam()), pf.PPCEF.paper(**both)]

    def explain() -> None:
        explainer.explain(rejected.iloc[:1])
        pf.ConditionalFlow(transforms=2, hidden=(8,), training=pf.Training(epochs=1)).fit(square, classes)
        for method in methods:
            replace(method, solver=replace(method.solver, **short(method.solver))).explain(
                square[:2], "paper"
            )

    def short(solver: object) -> dict[str, int]:
        return {"steps": 3} if isinstance(solver, pf.PenaltyAdam) else {}

    def seen(frame: FrameType) -> None:
        if frame.f_globals.get("__name__") == losses.__name__:
            executed.add(frame.f_code.co_name)

    traced(explain, seen)
    assert tagged_functions() >= {"l2_distance", "penalised", "validity_hinge", "plausibility_hinge"}
    assert tagged_functions() - executed == set()


def package_of(frame: FrameType | None) -> str:
    """The top-level package of plausiflow that a frame belongs to; empty for other code."""
    name = "" if frame is None else frame.f_globals.get("__name__", "")
    return name.split(".")[1] if re.match(r"plausiflow\.\w", name) else ""


@pytest.mark.parametrize("row", [0, 1, 3])
def test_a_row_makes_few_calls_between_packages(row, numbers, capsys):
    explainer, rejected = numbers
    calls: Counter[tuple[str, str]] = Counter()

    def seen(frame: FrameType) -> None:
        caller = frame.f_back
        while caller is not None and not package_of(caller):
            caller = caller.f_back
        here, there = package_of(caller), package_of(frame)
        if here and there and here != there:
            calls[f"{here}: {caller.f_code.co_qualname}", f"{there}: {frame.f_code.co_qualname}"] += 1

    traced(lambda: explainer.explain(rejected.iloc[[row]], "granted"), seen)
    for (caller, callee), count in calls.most_common():
        print(f"{count:4d}  {caller} -> {callee}")
    assert calls, "nothing was traced"
    assert calls.total() <= MOST_CALLS, capsys.readouterr().out
