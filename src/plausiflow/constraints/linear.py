r"""Linear relations between features, such as ``rent <= 0.4 * income``: their parser and their scale.

A recursive-descent parser reads this grammar; the text is never evaluated as Python:

.. code-block:: text

    relation := sum ("<=" | ">=" | "==" | "<" | ">") sum
    sum      := term (("+" | "-") term)*
    term     := factor (("*" | "/") factor)*
    factor   := ("+" | "-")* (number | name | "(" sum ")")
    name     := letters, digits, "_" and ".", or anything between backticks: `capital-gain`

One side of a product must be a number, and so must every divisor. ``<`` and ``>`` mean ``<=`` and ``>=``:
over continuous values the difference has probability zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NoReturn

import numpy as np

from plausiflow.errors import InvalidInputError
from plausiflow.tables import Feature

MAX_LENGTH = 1000
MAX_DEPTH = 30
ROUNDING = 1e-12
"""Relative difference up to which two results of floating-point arithmetic count as equal."""
EQUALITY = 1e-9
"""How closely an equality without a grid must hold, relative to the relation's reach."""

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d][\w.]*|`[^`]+`)"
    r"|(?P<compare><=|>=|==|<|>)"
    r"|(?P<symbol>[-+*/()])"
)


@dataclass(frozen=True)
class Relation:
    r"""A linear relation in the form :math:`\sum_j a_j x_j + b \ge 0` (or :math:`= 0`)."""

    coefficients: Mapping[str, float]  # the nonzero coefficients a, by feature name
    constant: float  # b
    equal: bool  # whether the two sides must be equal

    def reach(self, features: Mapping[str, Feature]) -> float:
        """Return by how much the left side varies over the training ranges; one if it is constant."""
        ends = {name: features[name].extent for name in self.coefficients}
        return sum(abs(a) * (ends[name][1] - ends[name][0]) for name, a in self.coefficients.items()) or 1.0

    def slack(self, features: Mapping[str, Feature]) -> float:
        """Return by how much an equality may be missed; zero for an inequality.

        Half of the finest step, which is as close as numbers on a grid can come. For numbers without a grid,
        a billionth of the reach.
        """
        if not self.equal:
            return 0.0
        movable = {n: a for n, a in self.coefficients.items() if features[n].kind != "constant"}
        finest = min((abs(a) * _step(features[name]) for name, a in movable.items()), default=0.0)
        return max(finest / 2, EQUALITY * self.reach(features))


def _step(feature: Feature) -> float:
    """Return the smallest difference of two values."""
    return feature.step if feature.is_number else float(np.diff(sorted(feature.level_numbers)).min())


@dataclass(frozen=True)
class _Token:
    kind: Literal["number", "name", "compare", "symbol", "end"]
    text: str
    position: int


@dataclass
class _Sum:
    """A linear expression: coefficients and a constant."""

    coefficients: dict[str, float] = field(default_factory=dict)
    constant: float = 0.0

    def add(self, other: _Sum, factor: float = 1.0) -> _Sum:
        names = [*self.coefficients, *(name for name in other.coefficients if name not in self.coefficients)]
        mine, theirs = self.coefficients, other.coefficients
        coefficients = {name: mine.get(name, 0.0) + factor * theirs.get(name, 0.0) for name in names}
        return _Sum(coefficients, self.constant + factor * other.constant)

    def scale(self, factor: float) -> _Sum:
        return _Sum({n: factor * c for n, c in self.coefficients.items()}, factor * self.constant)

    @property
    def finite(self) -> bool:
        return all(math.isfinite(value) for value in [*self.coefficients.values(), self.constant])


def parse_relation(text: str) -> Relation:
    """Parse a linear relation of at most 1000 characters; an error marks the position of a problem.

    Example:
        >>> parse_relation("rent <= 0.4 * income")
        Relation(coefficients={'rent': -1.0, 'income': 0.4}, constant=0.0, equal=False)
    """
    if len(text) > MAX_LENGTH:
        raise InvalidInputError(
            f"A linear relation must have at most {MAX_LENGTH} characters; got {len(text)}. Split it."
        )
    return _Parser(text).relation()


class _Parser:
    """A recursive-descent parser with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._tokenize()
        self._next = 0
        self._depth = 0

    def relation(self) -> Relation:
        left = self._sum()
        sign = self._take()
        if sign.kind != "compare":
            self._fail(sign, "expected one of <=, >=, ==")
        right = self._sum()
        rest = self._take()
        if rest.kind == "compare":
            self._fail(rest, "only one comparison is allowed; write the second as another Linear")
        if rest.kind != "end":
            self._fail(rest, "expected +, -, *, / or the end")
        difference = left.add(right, -1.0).scale(1.0 if sign.text[0] == ">" else -1.0)
        if not difference.finite:
            self._fail(sign, "the numbers are too large")
        coefficients = {name: value for name, value in difference.coefficients.items() if value}
        return Relation(coefficients, difference.constant + 0.0, sign.text == "==")

    def _sum(self) -> _Sum:
        total = self._term()
        while self._peek().text in ("+", "-"):
            sign = -1.0 if self._take().text == "-" else 1.0
            total = total.add(self._term(), sign)
        return total

    def _term(self) -> _Sum:
        product = self._factor()
        while self._peek().text in ("*", "/"):
            operator = self._take()
            start = self._peek()
            right = self._factor()
            if operator.text == "/":
                product = self._divide(product, right, start)
            else:
                product = self._multiply(product, right, operator)
        return product

    def _multiply(self, left: _Sum, right: _Sum, at: _Token) -> _Sum:
        if left.coefficients and right.coefficients:
            self._fail(at, "a product of two features is not linear; one side of * must be a number")
        return right.scale(left.constant) if right.coefficients else left.scale(right.constant)

    def _divide(self, left: _Sum, right: _Sum, at: _Token) -> _Sum:
        if right.coefficients:
            self._fail(at, "dividing by a feature is not linear; multiply both sides by it if it is positive")
        if right.constant == 0.0:
            self._fail(at, "division by zero")
        return left.scale(1.0 / right.constant)

    def _factor(self) -> _Sum:
        sign = 1.0
        while self._peek().text in ("+", "-"):
            sign = -sign if self._take().text == "-" else sign
        token = self._take()
        if token.kind == "number":
            if not math.isfinite(float(token.text)):
                self._fail(token, "the number is too large")
            return _Sum(constant=sign * float(token.text))
        if token.kind == "name":
            return _Sum({token.text.strip("`"): sign})
        if token.text != "(":
            self._fail(token, "expected a number, a feature or (")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(token, f"at most {MAX_DEPTH} parentheses may be open at once")
        inside = self._sum()
        closing = self._take()
        if closing.text != ")":
            self._fail(closing, f"expected ) for the ( at position {token.position + 1}")
        self._depth -= 1
        return inside.scale(sign)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _tokenize(self) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                self._fail(_Token("symbol", self._text[position], position), _hint(self._text[position]))
            kind = match.lastgroup
            touching = tokens and tokens[-1].position + len(tokens[-1].text) == position
            if kind != "space":
                token = _Token(kind, match.group(), position)  # type: ignore[arg-type]
                if kind == "name" and touching and tokens[-1].kind == "number":
                    self._fail(token, "write a product with *, as in 2 * income")
                tokens.append(token)
            position = match.end()
        return [*tokens, _Token("end", "", len(self._text))]

    def _fail(self, token: _Token, problem: str) -> NoReturn:
        shown = "".join(" " if character.isspace() else character for character in self._text)
        what = "the end" if token.kind == "end" else f"`{token.text}`"
        raise InvalidInputError(
            f"Cannot parse the relation at position {token.position + 1}, {what}: {problem}.\n"
            f"    {shown}\n    {' ' * token.position}^"
        )


def _hint(character: str) -> str:
    if character == "=":
        return "write == for equality, <= or >= for an inequality"
    if character == "`":
        return "a name between backticks needs a closing backtick"
    return "this character is not allowed; put names with spaces or dashes in backticks, as in `capital-gain`"
