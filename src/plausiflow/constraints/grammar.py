r"""The grammar of rules: linear relations, and conditions such as ``n_contacts == 0 and job in ['none']``.

A recursive-descent parser reads this grammar; the text is never evaluated as Python:

.. code-block:: text

    conditions := condition ("and" condition)*
    condition  := relation
                | name ("==" | "!=") value
                | name ["not"] "in" "[" value ("," value)* "]"
                | name "is" ["not"] "missing"
    relation   := sum ("<=" | ">=" | "==" | "!=" | "<" | ">") sum
    sum        := term (("+" | "-") term)*
    term       := factor (("*" | "/") factor)*
    factor     := ("+" | "-")* (number | name | "(" sum ")")
    value      := text in single or double quotes | ["-"] number | "True" | "False"
    name       := letters, digits, "_" and ".", or anything between backticks: `capital-gain`

One side of a product must be a number, and so must every divisor. In a relation that must hold, ``<`` and
``>`` mean ``<=`` and ``>=``: over continuous values the difference has probability zero. In a condition they
are strict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeVar

from plausiflow.constraints.linear import Relation
from plausiflow.errors import InvalidInputError
from plausiflow.tables import CellValue

MAX_LENGTH = 1000
MAX_DEPTH = 30

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d][\w.]*|`[^`]+`)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<compare><=|>=|==|!=|<|>)"
    r"|(?P<symbol>[-+*/()\[\],])"
)
RESERVED = ("and", "in", "not", "is", "missing", "True", "False")
"""Words with a meaning of their own in conditions; a column of such a name goes in backticks there."""

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Comparison:
    """A linear comparison as a condition: ``relation`` with its sign; ``<``, ``>`` and ``!=`` are strict."""

    relation: Relation
    sign: Literal[">=", ">", "==", "!="]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the compared features."""
        return tuple(self.relation.coefficients)


@dataclass(frozen=True)
class Membership:
    """A condition that a feature has one of some values, or none of them."""

    feature: str
    values: tuple[CellValue, ...]
    negated: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The name of the feature."""
        return (self.feature,)


@dataclass(frozen=True)
class IsMissing:
    """A condition that the value of a feature is missing, or is not."""

    feature: str
    negated: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The name of the feature."""
        return (self.feature,)


Condition = Comparison | Membership | IsMissing


@dataclass(frozen=True)
class _Token:
    kind: Literal["number", "name", "text", "compare", "symbol", "end"]
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
    return _parse(text, "relation", _Parser.only_relation)


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Parse conditions that are joined by ``and``; an error marks the position of a problem.

    Example:
        >>> parse_conditions("job in ['clerk', 'nurse']")
        (Membership(feature='job', values=('clerk', 'nurse'), negated=False),)
    """
    return _parse(text, "condition", _Parser.conditions)


def parse_equality(feature: str, expression: str) -> Relation:
    """Return the relation ``feature == expression``; an error marks a position in the expression.

    Example:
        >>> parse_equality("total", "net + tax")
        Relation(coefficients={'total': -1.0, 'net': 1.0, 'tax': 1.0}, constant=0.0, equal=True)
    """
    right = _parse(expression, "expression", _Parser.only_sum)
    difference = _Sum({feature: -1.0}).add(right)
    coefficients = {name: value for name, value in difference.coefficients.items() if value}
    return Relation(coefficients, difference.constant + 0.0, equal=True)


def _parse(text: str, what: str, read: Callable[[_Parser], Parsed]) -> Parsed:
    if len(text) > MAX_LENGTH:
        raise InvalidInputError(
            f"A {what} must have at most {MAX_LENGTH} characters; got {len(text)}. Split it."
        )
    return read(_Parser(text, what))


class _Parser:
    """A recursive-descent parser with one token of lookahead."""

    def __init__(self, text: str, what: str) -> None:
        self._text, self._what = text, what
        self._tokens = self._tokenize()
        self._next = 0
        self._depth = 0

    def only_relation(self) -> Relation:
        comparison = self._comparison("expected one of <=, >=, ==")
        self._end("write the second as another Linear", "expected +, -, *, / or the end")
        return comparison.relation

    def only_sum(self) -> _Sum:
        total = self._sum()
        if not total.finite:
            self._fail(self._tokens[0], "the numbers are too large")
        self._end("the left side is the feature; write the right side only", "expected +, -, *, / or the end")
        return total

    def conditions(self) -> tuple[Condition, ...]:
        found = [self._condition()]
        while self._peek().text == "and":
            self._take()
            found.append(self._condition())
        self._end("join it by `and`", "expected `and` or the end")
        return tuple(found)

    def _end(self, second: str, expected: str) -> None:
        rest = self._take()
        if rest.kind == "compare":
            self._fail(rest, f"only one comparison is allowed; {second}")
        if rest.kind != "end":
            self._fail(rest, expected)

    def _condition(self) -> Condition:
        start, second = self._peek(), self._peek(1)
        if start.kind == "name" and start.text not in RESERVED:
            name = start.text.strip("`")
            if second.text == "is":
                self._take(), self._take()
                negated = self._skip("not")
                word = self._take()
                if word.text != "missing":
                    self._fail(word, "expected `missing`, as in `income is missing`")
                return IsMissing(name, negated)
            if second.text in ("in", "not"):
                self._take()
                negated = self._skip("not")
                if not self._skip("in"):
                    self._fail(self._peek(), "expected `in`, as in `job not in ['clerk']`")
                return Membership(name, self._values(), negated)
            third = self._peek(2)
            if second.text in ("==", "!=") and (third.kind == "text" or third.text in ("True", "False")):
                self._take(), self._take()
                return Membership(name, (self._value(),), second.text == "!=")
        if start.kind == "text" or start.text in RESERVED:
            self._fail(start, "a condition starts with the name of a feature, or with a number")
        return self._comparison("expected <=, >=, ==, !=, <, >, `in` or `is`")

    def _comparison(self, expected: str) -> Comparison:
        left = self._sum()
        sign = self._take()
        if sign.kind != "compare":
            self._fail(sign, expected)
        if self._peek().kind == "text":
            self._fail(self._peek(), "a text is compared with one feature, by == or !=")
        right = self._sum()
        difference = left.add(right, -1.0).scale(1.0 if sign.text[0] == ">" else -1.0)
        if not difference.finite:
            self._fail(sign, "the numbers are too large")
        coefficients = {name: value for name, value in difference.coefficients.items() if value}
        relation = Relation(coefficients, difference.constant + 0.0, sign.text == "==")
        signs: dict[str, Literal[">=", ">", "==", "!="]] = {"<=": ">=", "<": ">", "==": "==", "!=": "!="}
        return Comparison(relation, signs.get(sign.text) or (">" if sign.text == ">" else ">="))

    def _values(self) -> tuple[CellValue, ...]:
        opening = self._take()
        if opening.text != "[":
            self._fail(opening, "expected a list of values, as in ['clerk', 'nurse']")
        values = [self._value()]
        while self._skip(","):
            values.append(self._value())
        closing = self._take()
        if closing.text != "]":
            self._fail(closing, f"expected , or ] for the [ at position {opening.position + 1}")
        return tuple(values)

    def _value(self) -> CellValue:
        sign = -1 if self._skip("-") else 1
        token = self._take()
        if token.kind == "number" and math.isfinite(float(token.text)):
            number = float(token.text)
            return sign * (int(number) if token.text.isdigit() else number)
        if sign == 1 and token.kind == "text":
            return token.text[1:-1]
        if sign == 1 and token.text in ("True", "False"):
            return token.text == "True"
        self._fail(token, "expected a text in quotes, a number, True or False")

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

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._peek()
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _skip(self, text: str) -> bool:
        """Take the next token if it is this one."""
        found = self._peek().text == text
        if found:
            self._take()
        return found

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
                if self._what != "condition" and (kind == "text" or token.text == "!="):
                    self._fail(token, "this is not allowed here, but in a condition of Implies")
                tokens.append(token)
            position = match.end()
        return [*tokens, _Token("end", "", len(self._text))]

    def _fail(self, token: _Token, problem: str) -> NoReturn:
        shown = "".join(" " if character.isspace() else character for character in self._text)
        what = "the end" if token.kind == "end" else f"`{token.text}`"
        raise InvalidInputError(
            f"Cannot parse the {self._what} at position {token.position + 1}, {what}: {problem}.\n"
            f"    {shown}\n    {' ' * token.position}^"
        )


def _hint(character: str) -> str:
    if character == "=":
        return "write == for equality, <= or >= for an inequality"
    if character == "`":
        return "a name between backticks needs a closing backtick"
    if character in "'\"":
        return "this is not allowed; a text needs a closing quote"
    return "this character is not allowed; put names with spaces or dashes in backticks, as in `capital-gain`"
