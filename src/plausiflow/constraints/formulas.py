r"""Numbers that are computed from others: products of powers, or a logarithm, for arrays and for tensors.

A formula is :math:`c \prod_j x_j^{p_j} + b`, such as a price per unit (``price / units``) or a body mass
index (``weight / height ** 2``), or :math:`c \log x + b`. It has no result where it divides by zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias

import numpy as np
import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError
from plausiflow.tables import FloatArray

Function: TypeAlias = Literal["log", "log1p"]
FUNCTIONS: tuple[Function, ...] = ("log", "log1p")
MOST_NAMES, MOST_CHARACTERS = 6, 1000
_TINY, _LARGEST_LOG = 1e-12, 700.0
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d][\w.]*|`[^`]+`)|(?P<sign>\*\*|[-+*/()]))"
)


@dataclass(frozen=True)
class Formula:
    """How a number is computed from others.

    Attributes:
        powers: Names of the numbers and their exponents; with a function, one name with exponent 1.
        factor: The c.
        constant: The b.
        function: A function of the number, in place of a product.
    """

    powers: tuple[tuple[str, float], ...]
    factor: float = 1.0
    constant: float = 0.0
    function: Function | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return tuple(name for name, _ in self.powers)

    @property
    def text(self) -> str:
        """The formula as people write it; :func:`parse_formula` reads it.

        Example:
            >>> Formula((("weight", 1), ("height", -2)), factor=10_000).text
            '10000 * weight / height ** 2'
        """
        above = [_power(name, power) for name, power in self.powers if power > 0]
        below = [_power(name, -power) for name, power in self.powers if power < 0]
        if self.function is not None:
            above = [f"{self.function}({above[0]})"]
        if self.factor != 1 or not above:
            above = [f"{self.factor:.12g}", *above]
        text = " / ".join([" * ".join(above), *below])
        return text + (
            f" {'-' if self.constant < 0 else '+'} {abs(self.constant):.12g}" if self.constant else ""
        )

    @property
    def relative_error(self) -> float:
        """By how much a relative error of the numbers is multiplied."""
        return sum(abs(power) for _, power in self.powers)

    def of_arrays(self, values: Sequence[FloatArray]) -> FloatArray:
        """Return the results; NaN where there is none."""
        with np.errstate(all="ignore"):
            if self.function is not None:
                result = np.log(values[0]) if self.function == "log" else np.log1p(values[0])
            else:
                result = np.ones_like(values[0])
                for x, (_, power) in zip(values, self.powers, strict=True):
                    result = result * (x**power if power > 0 else np.where(x == 0, np.nan, x) ** power)
            return np.asarray(self.factor * result + self.constant)

    def of_tensors(self, values: Sequence[Tensor]) -> Tensor:
        """Return the results, always finite; keeps the graph."""
        if self.function is not None:
            log = torch.log if self.function == "log" else torch.log1p
            return self.factor * log(values[0].clamp_min(_TINY - (self.function == "log1p"))) + self.constant
        return self.factor * self._product(values) + self.constant

    def has_result(self, values: Sequence[Tensor]) -> Tensor | None:
        """Return where no number is divided by zero, shape ``(k,)``; None if that is everywhere."""
        below = [x for x, (_, power) in zip(values, self.powers, strict=True) if power < 0]
        return torch.stack([x.abs() > _TINY for x in below]).all(dim=0) if below else None

    def solved(self, place: int, total: Tensor, values: Sequence[Tensor]) -> Tensor:
        """Return the number at a place with which the formula has a result, on its side of zero."""
        total = (total - self.constant) / self.factor
        if self.function is not None:
            total = total.clamp_max(_LARGEST_LOG)
            return torch.exp(total) if self.function == "log" else torch.expm1(total)
        own, power = values[place], self.powers[place][1]
        others = [torch.ones_like(own) if j == place else x for j, x in enumerate(values)]
        share = total / _not_zero(self._product(others))
        if power == 1:
            return share
        if power == -1:
            return 1 / _not_zero(share)
        side = torch.where(own < 0, -1.0, 1.0)
        return side * share.abs().clamp_min(_TINY) ** (1 / power)

    def _product(self, values: Sequence[Tensor]) -> Tensor:
        result = torch.ones_like(values[0])
        for x, (_, power) in zip(values, self.powers, strict=True):
            base = x if power > 0 else _not_zero(x)
            result = result * (base if power == 1 else _raised(base, power))
        return result


def parse_formula(text: str) -> Formula:
    """Return the formula of a text; an error marks the position of a problem.

    Example:
        >>> parse_formula("10000 * weight / height ** 2").powers
        (('weight', 1.0), ('height', -2.0))
        >>> parse_formula("100 * log(wage) - 3").function
        'log'
    """
    return _FormulaParser(text).formula()


class _FormulaParser:
    """Reads ``["-"] factor (("*" | "/") factor)* [("+" | "-") number]``, with one function of one number."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
            raise InvalidInputError(
                f"A formula must be a text of at most {MOST_CHARACTERS} characters, such as "
                f"'weight / height ** 2'; got {str(text)[:50]!r}."
            )
        self._text, self._place = text, 0
        self._tokens: list[tuple[str, str, int]] = []
        place = 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                place += len(text[place:]) - len(text[place:].lstrip())
                self._fail(
                    place, "this character is not allowed; names with spaces or dashes go in backticks"
                )
            kind = str(match.lastgroup)
            self._tokens.append((kind, match.group(kind), match.start(kind)))
            place = match.end()

    def formula(self) -> Formula:
        sign = -1.0 if self._skip("-") else 1.0
        powers: dict[str, float] = {}
        factor, function = self._factor(powers, 1.0)
        while self._peek()[1] in ("*", "/"):
            side = -1.0 if self._take()[1] == "/" else 1.0
            more, other = self._factor(powers, side)
            factor, function = factor * more, function or other
        constant = 0.0
        if self._peek()[1] in ("+", "-"):
            constant = -1.0 if self._take()[1] == "-" else 1.0
            constant *= self._number()
        kind, _, place = self._peek()
        if kind != "end":
            self._fail(
                place, "expected *, /, **, a number that is added, or the end; sums of features go in Equal"
            )
        powers = {name: power for name, power in powers.items() if power}
        one = function is None or list(powers.values()) == [1.0]
        if not powers or len(powers) > MOST_NAMES or not one:
            self._fail(0, f"expected a product of powers of at most {MOST_NAMES} features, or log of one")
        if not factor or not math.isfinite(factor):
            self._fail(0, "the numbers are too small or too large")
        return Formula(tuple(powers.items()), sign * factor, constant, function)

    def _factor(self, powers: dict[str, float], side: float) -> tuple[float, Function | None]:
        """Read a number or a power into ``powers``; return its number and its function."""
        kind, text, place = self._take()
        if kind == "number":
            number = float(text)
            if not number or not math.isfinite(number):
                self._fail(place, "a factor must be a number other than zero")
            return number**side, None
        if kind != "name":
            self._fail(place, "expected a number or a feature")
        function: Function | None = None
        if text in FUNCTIONS and self._skip("("):
            function = "log" if text == "log" else "log1p"
            kind, text, place = self._take()
            if kind != "name" or not self._skip(")") or side < 0:
                self._fail(place, f"expected one feature, as in {function}(income), that is not divided by")
        name, power = text.strip("`"), 1.0
        if function is None and self._skip("**"):
            power = -self._number() if self._skip("-") else self._number()
        powers[name] = powers.get(name, 0.0) + side * power
        return 1.0, function

    def _number(self) -> float:
        kind, text, place = self._take()
        if kind != "number" or not math.isfinite(float(text)):
            self._fail(place, "expected a number")
        return float(text)

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "", len(self._text))

    def _take(self) -> tuple[str, str, int]:
        token = self._peek()
        self._place += 1
        return token

    def _skip(self, text: str) -> bool:
        found = self._peek()[1] == text
        self._place += found
        return found

    def _fail(self, place: int, problem: str) -> NoReturn:
        shown = "".join(" " if character.isspace() else character for character in self._text)
        raise InvalidInputError(
            f"Cannot parse the formula at position {place + 1}: {problem}.\n    {shown}\n    {' ' * place}^"
        )


def _power(name: str, power: float) -> str:
    plain = re.fullmatch(r"[^\W\d][\w.]*", name) is not None
    return (name if plain else f"`{name}`") + ("" if power == 1 else f" ** {power:.12g}")


def _raised(base: Tensor, power: float) -> Tensor:
    """Return powers; of negative numbers only whole ones exist."""
    return base**power if power == int(power) else base.clamp_min(_TINY) ** power


def _not_zero(values: Tensor) -> Tensor:
    """Return values that can be divided by; zero becomes tiny, so that the result is out of any range."""
    return torch.where(values.abs() < _TINY, _TINY, values)
