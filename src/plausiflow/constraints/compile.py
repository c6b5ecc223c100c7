"""Rules for a table: checked once, then asked what they leave to rows, and which of them rows break."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints.allow import Rows, build
from plausiflow.constraints.allowance import Allowance
from plausiflow.constraints.checks import find_problems
from plausiflow.constraints.rules import Decreasing, Immutable, Increasing, Rule
from plausiflow.constraints.violations import find_violations
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.tables import Feature, Layout, Mask, Schema


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Rules:
    """Rules for the rows of a table.

    Attributes:
        constraints: The rules, each once.
        schema: Of the table.
        layout: Of its encoded rows.

    Raises:
        InvalidInputError: With everything that is wrong with the rules.
    """

    constraints: tuple[Rule, ...]
    schema: Schema
    layout: Layout

    def __init__(self, constraints: Sequence[Rule], schema: Schema, layout: Layout) -> None:
        if isinstance(constraints, str) or not isinstance(constraints, Sequence):
            raise InvalidInputError(f"`constraints` must be a list of rules; got {constraints!r}.")
        object.__setattr__(self, "constraints", tuple(constraints))
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "layout", layout)
        problems = find_problems(constraints, self.features)
        if problems:
            raise InvalidInputError("The constraints cannot be used:\n- " + "\n- ".join(problems))
        object.__setattr__(self, "constraints", tuple(dict.fromkeys(constraints)))

    def __repr__(self) -> str:
        return f"Rules({', '.join(self.names)})"

    @cached_property
    def features(self) -> dict[str, Feature]:
        """The features of the table, by name."""
        return {feature.name: feature for feature in self.schema.features}

    @property
    def names(self) -> tuple[str, ...]:
        """The rules as people write them."""
        return tuple(map(str, self.constraints))

    @property
    def immutable(self) -> tuple[str, ...]:
        """Features that no row may change, in the table's order."""
        named = {name for rule in self.constraints if isinstance(rule, Immutable) for name in rule.features}
        return tuple(name for name in self.features if name in named)

    @property
    def monotone(self) -> tuple[str, ...]:
        """Features that may move in one direction only, in the table's order."""
        named = {rule.feature for rule in self.constraints if isinstance(rule, Increasing | Decreasing)}
        return tuple(name for name in self.features if name in named)

    def for_rows(
        self,
        x: Tensor,
        frame: pd.DataFrame | None = None,
        locked: Mask | Tensor | None = None,
        without: int | None = None,
    ) -> Allowance:
        """What the rules leave to each row.

        Args:
            x: Encoded rows, shape ``(n, width)``.
            frame: The same rows as a table, for exact values, and for constants, which are not encoded;
                without it, constants are those of the training rows.
            locked: Which features each row keeps, in the table's order, shape ``(n, features)``.
            without: Which rule to leave out, by its number.
        """
        if x.ndim != 2 or x.shape[1] != self.layout.width:
            raise ShapeError(
                f"`x` must have shape (n, {self.layout.width}), rows as encoded; got {tuple(x.shape)}."
            )
        if without is not None and without not in range(len(self.constraints)):
            raise InvalidInputError(
                f"`without` must be the number of a rule, below {len(self.constraints)}; got {without!r}."
            )
        if frame is not None:
            self._check_frame("frame", frame, len(x))
        mask = torch.from_numpy(self._checked_locks(locked, len(x))).to(x.device)
        rules = [rule for number, rule in enumerate(self.constraints) if number != without]
        return build(Rows(self.features, self.layout, x, frame, mask), rules)

    def violations(
        self, before: pd.DataFrame, after: pd.DataFrame, locked: Mask | Tensor | None = None
    ) -> pd.DataFrame:
        """Which rules each row breaks, judged on the tables alone.

        Args:
            before: Rows as they were; with missing values filled in, where the encoder fills them.
            after: The same rows, changed.
            locked: Which features each row keeps, in the table's order, shape ``(n, features)``.

        Returns:
            Booleans, indexed as ``after``: a column for each rule, under its name as people write it, then
            ``locked``, ``training range``, ``known levels``, ``missing values`` and
            ``constants and identifiers``.
        """
        self._check_frame("before", before, len(after))
        self._check_frame("after", after, len(after))
        mask = self._checked_locks(locked, len(after))
        return find_violations(self.constraints, self.features, before, after, mask)

    def _check_frame(self, what: str, frame: pd.DataFrame, n: int) -> None:
        absent = [repr(name) for name in self.features if name not in frame.columns]
        if absent:
            raise InvalidInputError(
                f"`{what}` must have all columns of the table; not there: {', '.join(absent)}."
            )
        if len(frame) != n:
            raise ShapeError(f"`{what}` must have {n} rows, as many as the other rows; got {len(frame)}.")

    def _checked_locks(self, locked: Mask | Tensor | None, n: int) -> Mask:
        shape = (n, len(self.features))
        if locked is None:
            return np.zeros(shape, dtype=np.bool_)
        mask = locked.cpu().numpy() if isinstance(locked, Tensor) else np.asarray(locked)
        if mask.shape != shape or mask.dtype != np.bool_:
            raise ShapeError(
                f"`locked` must hold booleans of shape {shape}, as from locked_mask; "
                f"got {mask.dtype} of shape {mask.shape}."
            )
        return mask
