"""What the rules about one feature leave to each row, in encoded units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plausiflow.constraints.extents import interval, is_numeric, level_numbers, writable
from plausiflow.constraints.rules import Allowed, Decreasing, Immutable, Increasing, Rule
from plausiflow.tables import Block, Feature, Scale, key


@dataclass(frozen=True)
class Limits:
    """All that rules say about one feature alone.

    Attributes:
        fixed: It keeps its value.
        rising: It may not fall.
        falling: It may not rise.
        lo: Its smallest value.
        hi: Its largest value.
        allowed: What levels may be moved to.
    """

    fixed: bool
    rising: bool
    falling: bool
    lo: float
    hi: float
    allowed: tuple[Allowed, ...]

    @classmethod
    def of(cls, name: str, rules: Sequence[Rule]) -> Limits:
        """Of a feature, by name."""
        lo, hi = interval(name, rules)
        return cls(
            fixed=any(isinstance(rule, Immutable) and name in rule.features for rule in rules),
            rising=Increasing(name) in rules,
            falling=Decreasing(name) in rules,
            lo=lo,
            hi=hi,
            allowed=tuple(rule for rule in rules if isinstance(rule, Allowed) and rule.feature == name),
        )


def number_bounds(
    feature: Feature, limits: Limits, own: Tensor, values: Tensor, fixed: Tensor
) -> tuple[Tensor, Tensor]:
    """Smallest and largest encoded numbers, each of shape ``(n,)``; none is left where they are reversed.

    The training range, widened by the row's own number, cut by the rules.

    Args:
        feature: With a number.
        limits: Its rules.
        own: The rows' encoded numbers, shape ``(n,)``.
        values: The same in original units, shape ``(n,)``.
        fixed: Which rows keep it, shape ``(n,)``.
    """
    lower, upper = own.clamp_max(0.0), own.clamp_min(1.0)
    lo, hi = _edge(feature, limits.lo, 1, own), _edge(feature, limits.hi, -1, own)
    # A number that is inside its range stays allowed, whatever the rounding of the scale.
    lower = torch.maximum(lower, torch.where(values >= limits.lo, torch.minimum(lo, own), lo))
    upper = torch.minimum(upper, torch.where(values <= limits.hi, torch.maximum(hi, own), hi))
    floor = fixed | torch.tensor(limits.rising, device=own.device)
    ceiling = fixed | torch.tensor(limits.falling, device=own.device)
    lower = torch.where(floor, torch.maximum(lower, own), lower)
    upper = torch.where(ceiling, torch.minimum(upper, own), upper)
    return lower, upper


def _edge(feature: Feature, bound: float, side: int, like: Tensor) -> Tensor:
    """A bound in encoded units, where it decodes to a value inside it."""
    if math.isinf(bound):
        return like.new_tensor(bound)
    value, scale = like.new_tensor(writable(feature, bound, side), dtype=torch.float64), feature.scale
    if feature.step:
        return scale.snap(scale.encode(value.to(like)))
    edge = scale.encode(value).to(like)
    return _inside(scale, edge, value, side)


def _inside(scale: Scale, edge: Tensor, value: Tensor, side: int) -> Tensor:
    outwards, ulps = torch.full_like(edge, side * math.inf), 0
    while side * scale.decode(edge.double()) < side * value and ulps < 64:
        edge, ulps = torch.nextafter(edge, outwards), ulps + 1
    return edge


def state_choices(block: Block, own: Tensor, lower: Tensor, upper: Tensor, codes: Tensor) -> Tensor:
    """Which states a number may be in, shape ``(n, levels)``.

    Args:
        block: Of the number.
        own: The rows' encoded numbers, shape ``(n,)``.
        lower: Their smallest allowed numbers, shape ``(n,)``.
        upper: Their largest allowed numbers, shape ``(n,)``.
        codes: The rows' states, shape ``(n,)``.
    """
    rounding = 8 * torch.finfo(own.dtype).eps
    columns = []
    for pin, closed in zip(block.pinned, block.closed, strict=True):
        if pin is None or closed:
            columns.append(torch.full_like(own, pin is None, dtype=torch.bool))
        else:
            columns.append((lower <= pin + rounding) & (upper >= pin - rounding))
    kept = (lower == own) & (upper == own)
    return torch.where(kept[:, None], _at(codes, len(columns)), torch.stack(columns, dim=1))


def level_choices(feature: Feature, block: Block, limits: Limits, codes: Tensor, fixed: Tensor) -> Tensor:
    """Which levels a category may be at, shape ``(n, levels)``; a range may leave none.

    Args:
        feature: With levels.
        block: Of the feature.
        limits: Its rules.
        codes: The rows' levels, shape ``(n,)``.
        fixed: Which rows keep it, shape ``(n,)``.
    """
    n = len(block.levels)
    order = torch.arange(n, device=codes.device)
    # moves[i, j]: whether a row at level i may move to level j.
    moves = ~torch.tensor(block.closed, device=codes.device).expand(n, n)
    if limits.rising:
        moves = moves & (order >= order[:, None])
    if limits.falling:
        moves = moves & (order <= order[:, None])
    for rule in limits.allowed:
        moves = moves & _listed(rule, feature, n).to(codes.device)
    own = _at(codes, n)
    choices = torch.where(fixed[:, None], own, moves[codes])
    if is_numeric(feature) and not (math.isinf(limits.lo) and math.isinf(limits.hi)):
        inside = [limits.lo <= number <= limits.hi for number in level_numbers(feature)]
        inside += [False] * (n - len(inside))
        choices = choices & torch.tensor(inside, device=codes.device)
    return choices


def _listed(rule: Allowed, feature: Feature, n: int) -> Tensor:
    """``[i, j]``: whether a rule lets rows at level i move to level j; all may stay."""
    codes = {key(level): code for code, level in enumerate(feature.levels)}
    moves = torch.eye(n, dtype=torch.bool)
    if rule.values is not None:
        moves[:, [codes[key(level)] for level in rule.values]] = True
    for own, to in rule.transitions or ():
        moves[codes[key(own)], [codes[key(level)] for level in to]] = True
    return moves


def _at(codes: Tensor, n: int) -> Tensor:
    return torch.nn.functional.one_hot(codes, n).bool()
