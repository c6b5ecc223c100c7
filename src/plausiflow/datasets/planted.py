"""Truths that are planted in a generated table, so that a study can score what is learned from it.

A truth is a predicate of rows. It says nothing of how a rule is written: a truth counts as recovered if what
was learned rejects rows that break it (:func:`break_truth` makes such rows).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

Mask = npt.NDArray[np.bool_]
TruthKind = Literal["special", "grid", "equivalence", "implication", "never", "order", "sum", "hierarchy"]


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Something that holds in every row of a generated table, except for stated rare exceptions.

    Attributes:
        kind: ``special`` and ``grid`` are about one column; the other kinds are about several.
        columns: The columns that it is about.
        description: The truth in words.
        holds: Whether each row of a table has it, shape ``(n,)``.
        values: The special values of a ``special`` truth, or the step of a ``grid``.
        exceptions: The share of generated rows that break it on purpose.
    """

    kind: TruthKind
    columns: tuple[str, ...]
    description: str
    holds: Callable[[pd.DataFrame], Mask] = field(repr=False)
    values: tuple[float, ...] = ()
    exceptions: float = 0.0


def grid_truth(column: str, step: float, exceptions: float = 0.0) -> Truth:
    """Return the truth that values are multiples of a step."""

    def holds(frame: pd.DataFrame) -> Mask:
        steps = frame[column].to_numpy(np.float64) / step
        return np.asarray(np.abs(steps - np.rint(steps)) < 1e-6)

    description = f"{column} is a multiple of {step:g}"
    return Truth(
        kind="grid",
        columns=(column,),
        description=description,
        holds=holds,
        values=(step,),
        exceptions=exceptions,
    )


def special_truth(column: str, value: float, least: float, most: float) -> Truth:
    """Return the truth that values are one special value, or between two bounds."""

    def holds(frame: pd.DataFrame) -> Mask:
        values = frame[column].to_numpy(np.float64)
        return np.asarray((values == value) | ((values >= least) & (values <= most)))

    description = f"{column} is {value:g}, or between {least:g} and {most:g}"
    return Truth(kind="special", columns=(column,), description=description, holds=holds, values=(value,))


def sum_truth(total: str, *parts: str) -> Truth:
    """Return the truth that a column is the sum of others, to a thousandth."""

    def holds(frame: pd.DataFrame) -> Mask:
        added = frame[list(parts)].to_numpy(np.float64).sum(axis=1)
        return np.asarray(np.abs(frame[total].to_numpy(np.float64) - added) < 1e-3)

    description = f"{total} = {' + '.join(parts)}"
    return Truth(kind="sum", columns=(total, *parts), description=description, holds=holds)


def order_truth(small: str, large: str) -> Truth:
    """Return the truth that a column is at most another."""

    def holds(frame: pd.DataFrame) -> Mask:
        return np.asarray(frame[small].to_numpy(np.float64) <= frame[large].to_numpy(np.float64) + 1e-9)

    return Truth(kind="order", columns=(small, large), description=f"{small} <= {large}", holds=holds)


def equivalence_truth(first: tuple[str, object], second: tuple[str, object]) -> Truth:
    """Return the truth that two columns have certain values in the same rows."""

    def holds(frame: pd.DataFrame) -> Mask:
        return np.asarray((frame[first[0]] == first[1]) == (frame[second[0]] == second[1]), dtype=bool)

    description = f"{first[0]} is {first[1]} if and only if {second[0]} is {second[1]}"
    return Truth(kind="equivalence", columns=(first[0], second[0]), description=description, holds=holds)


def implication_truth(first: tuple[str, object], second: tuple[str, object]) -> Truth:
    """Return the truth that a value of one column implies a value of another."""

    def holds(frame: pd.DataFrame) -> Mask:
        return np.asarray((frame[first[0]] != first[1]) | (frame[second[0]] == second[1]), dtype=bool)

    description = f"{first[0]} {first[1]} implies {second[0]} {second[1]}"
    return Truth(kind="implication", columns=(first[0], second[0]), description=description, holds=holds)


def never_truth(first: tuple[str, object], second: tuple[str, object]) -> Truth:
    """Return the truth that two values never occur together."""

    def holds(frame: pd.DataFrame) -> Mask:
        return np.asarray((frame[first[0]] != first[1]) | (frame[second[0]] != second[1]), dtype=bool)

    description = f"{first[0]} {first[1]} never occurs with {second[0]} {second[1]}"
    return Truth(kind="never", columns=(first[0], second[0]), description=description, holds=holds)


def hierarchy_truth(part: str, whole: str, parents: dict[str, str]) -> Truth:
    """Return the truth that each value of one column belongs to one value of another."""

    def holds(frame: pd.DataFrame) -> Mask:
        expected = frame[part].astype(str).map(parents)
        return np.asarray(expected.to_numpy(object) == frame[whole].astype(str).to_numpy(object), dtype=bool)

    description = f"{part} determines {whole}"
    return Truth(kind="hierarchy", columns=(part, whole), description=description, holds=holds)


def break_truth(
    truth: Truth, frame: pd.DataFrame, n: int, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return up to ``n`` real rows, and the same rows changed so that they break a truth about columns.

    In each, one column of the truth has the value of another row, so every value alone is a real one.

    Example:
        >>> from plausiflow.datasets import orders
        >>> x, _ = orders.draw(n=200)
        >>> before, after = break_truth(orders.TRUTHS[-1], x, n=20)
        >>> len(after), bool(orders.TRUTHS[-1].holds(after).any())
        (20, False)
    """
    generator = np.random.default_rng(seed)
    before, after = [], []
    each = -(-n // len(truth.columns))
    for name in truth.columns:
        rows = generator.integers(len(frame), size=max(200 * n, 1000))
        old = frame.iloc[rows].reset_index(drop=True)
        new = old.copy()
        new[name] = frame[name].iloc[generator.integers(len(frame), size=len(rows))].reset_index(drop=True)
        broken = np.flatnonzero(truth.holds(old) & ~truth.holds(new))[:each]
        before.append(old.iloc[broken])
        after.append(new.iloc[broken])
    return pd.concat(before, ignore_index=True).iloc[:n], pd.concat(after, ignore_index=True).iloc[:n]
