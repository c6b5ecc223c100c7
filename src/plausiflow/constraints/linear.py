r"""Read a linear relation between features, such as ``rent <= 0.4 * income``.

The grammar, read by recursive descent (nothing is ever evaluated as Python):

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

from plausiflow.errors import InvalidInputError

MAX_LENGTH = 1000
MAX_DEPTH = 30

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d][\w.]*|`[^`]+`)"
    r"|(?P<compare><=|>=|==|<|>)"
    r"|(?P<symbol>[-+*/()])"
)


@dataclass(frozen=True)
class Relation:
    r"""A linear relation, brought to the form :math:`\sum_j a_j x_j + b \ge 0` (or :math:`= 0`).

    Attributes:
        coefficients: :math:`a_j` by feature name, none of them zero.
        constant: :math:`b`.
        equal: Whether the two sides must be equal.
    """

    coefficients: Mapping[str, float]
    constant: float
    equal: bool


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

    def plus(self, other: _Sum, factor: float = 1.0) -> _Sum:
        names = [*self.coefficients, *(name for name in other.coefficients if name not in self.coefficients)]
        mine, theirs = self.coefficients, other.coefficients
        coefficients = {name: mine.get(name, 0.0) + factor * theirs.get(name, 0.0) for name in names}
        return _Sum(coefficients, self.constant + factor * other.constant)

    def times(self, factor: float) -> _Sum:
        return _Sum({n: factor * c for n, c in self.coefficients.items()}, factor * self.constant)

    @property
    def finite(self) -> bool:
        return all(math.isfinite(value) for value in [*self.coefficients.values(), self.constant])


def parse(text: str) -> Relation:
    """Read a relation.

    Args:
        text: Such as ``rent <= 0.4 * income``, at most 1000 characters.

    Raises:
        InvalidInputError: With the place in the text that cannot be read.

    Example:
        >>> parse("rent <= 0.4 * income")
        Relation(coefficients={'rent': -1.0, 'income': 0.4}, constant=0.0, equal=False)
    """
    if len(text) > MAX_LENGTH:
        raise InvalidInputError(
            f"A linear relation has at most {MAX_LENGTH} characters; got {len(text)}. Split it into several."
        )
    return _Parser(text).relation()


class _Parser:
    """One pass over the tokens, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._tokenised()
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
            self._fail(rest, "only one comparison fits in a relation; write the second as its own Linear")
        if rest.kind != "end":
            self._fail(rest, "expected +, -, *, / or the end")
        difference = left.plus(right, -1.0).times(1.0 if sign.text[0] == ">" else -1.0)
        if not difference.finite:
            self._fail(sign, "the numbers are too large")
        coefficients = {name: value for name, value in difference.coefficients.items() if value}
        return Relation(coefficients, difference.constant + 0.0, sign.text == "==")

    def _sum(self) -> _Sum:
        total = self._term()
        while self._peek().text in ("+", "-"):
            sign = -1.0 if self._take().text == "-" else 1.0
            total = total.plus(self._term(), sign)
        return total

    def _term(self) -> _Sum:
        product = self._factor()
        while self._peek().text in ("*", "/"):
            operator = self._take()
            start = self._peek()
            right = self._factor()
            product = (
                self._divided(product, right, start)
                if operator.text == "/"
                else self._multiplied(product, right, operator)
            )
        return product

    def _multiplied(self, left: _Sum, right: _Sum, at: _Token) -> _Sum:
        if left.coefficients and right.coefficients:
            self._fail(at, "a product of two features is not linear; one side of * must be a number")
        return right.times(left.constant) if right.coefficients else left.times(right.constant)

    def _divided(self, left: _Sum, right: _Sum, at: _Token) -> _Sum:
        if right.coefficients:
            self._fail(at, "dividing by a feature is not linear; multiply both sides by it if it is positive")
        if right.constant == 0.0:
            self._fail(at, "division by zero")
        return left.times(1.0 / right.constant)

    def _factor(self) -> _Sum:
        sign = 1.0
        while self._peek().text in ("+", "-"):
            sign = -sign if self._take().text == "-" else sign
        token = self._take()
        if token.kind == "number":
            return _Sum(constant=sign * self._number(token))
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
        return inside.times(sign)

    def _number(self, token: _Token) -> float:
        value = float(token.text)
        if not math.isfinite(value):
            self._fail(token, "the number is too large")
        return value

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _tokenised(self) -> list[_Token]:
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
            f"Cannot read the relation at position {token.position + 1}, {what}: {problem}.\n"
            f"    {shown}\n    {' ' * token.position}^"
        )


def _hint(character: str) -> str:
    if character == "=":
        return "write == for equality, <= or >= for an inequality"
    if character == "`":
        return "a name between backticks needs a closing backtick"
    return "no such sign in a relation; put names with spaces or dashes in backticks, as in `capital-gain`"
