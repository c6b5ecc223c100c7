r"""What the outputs of a model must satisfy for a target, as linear inequalities.

The outputs are logits, averaged probabilities or a number, z. A target asks for
:math:`a^\top z \ge b` for a few pairs (a, b):

- logits, two classes: :math:`z_{y} - z_o - \log(t_y / t_o) \ge \operatorname{logit}(1/2 + \epsilon)`;
- logits, more classes, for each rival o: winning by :math:`\epsilon` implies
  :math:`p_y / p_o \ge (1 + \epsilon) / (1 - \epsilon)`, a necessary condition that is linear in the logits;
  (the exact condition is convex in the logits, so that its tangents at rejected rows can be added);
- averaged probabilities: :math:`p_y / t_y - p_o / t_o \ge \epsilon' \sum_k p_k / t_k`, exactly;
- a minimum probability q: log-odds of at least those of q against each rival;
- a number between two bounds: two inequalities.

Every inequality is lowered by what rounding may add to the sum that the library computes, so a row that the
model decides as wanted satisfies all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plausiflow.core import TargetCriterion, Targets
from plausiflow.exact.spaces import OutputForm

Array = npt.NDArray[np.float64]

_TOLERANCE = 2e-9
"""What the criterion allows a minimum probability to be missed by, in log-odds, and rounding in double."""


@dataclass(frozen=True, eq=False)
class ScoreRow:
    """The inequality ``weights @ outputs >= threshold``.

    Attributes:
        weights: The a, shape ``(outputs,)``.
        threshold: The b, lowered by ``slack``.
        slack: What rounding may add.
        strict: Whether every row of the program must satisfy it; else every row that satisfies it must be in
            the program.
    """

    weights: Array
    threshold: float
    slack: float
    strict: bool = False


def score_rows(
    form: OutputForm, criterion: TargetCriterion, targets: Targets, *, raised: float = 0.0
) -> list[ScoreRow]:
    """Return the inequalities of the target of one row.

    Args:
        form: What the outputs are.
        criterion: Compares outputs with targets.
        targets: The target of one row.
        raised: How many slacks the thresholds are raised by; with 2, rounding cannot undo the decision.
    """
    pairs = _pairs(form, criterion, targets)
    rows = []
    for weights, threshold, sensitivity in pairs:
        slack = form.rounding(weights) + form.probability_error * sensitivity
        slack += _TOLERANCE * (1.0 if not form.averaged else 0.25)
        rows.append(ScoreRow(weights, threshold - slack + raised * slack, slack, raised > 0))
    return rows


def _pairs(
    form: OutputForm, criterion: TargetCriterion, targets: Targets
) -> list[tuple[Array, float, float]]:
    """Return weights and threshold of each inequality, and how log-odds react to a probability."""
    if criterion.edges:
        assert targets.low is not None
        assert targets.high is not None
        low, high = float(targets.low[0]), float(targets.high[0])
        pairs = [(np.ones(1), low, abs(low))] if math.isfinite(low) else []
        return pairs + ([(-np.ones(1), -high, abs(high))] if math.isfinite(high) else [])
    y, k = int(targets.y[0]), form.n_outputs
    cutoffs = np.array(criterion.cutoffs or [1.0] * k)
    least = None if targets.min_probability is None else float(targets.min_probability[0])
    build = _averaged if form.averaged else _logits
    return [pair for o in range(k) if o != y for pair in build(y, o, k, cutoffs, criterion.margin, least)]


def _logits(
    y: int, o: int, k: int, cutoffs: Array, margin: float, least: float | None
) -> list[tuple[Array, float, float]]:
    weights = np.zeros(k)
    weights[y], weights[o] = 1.0, -1.0
    odds = _odds(0.5 + margin) if k == 2 else (1 + margin) / (1 - margin)
    wins = (weights, math.log(odds) + math.log(cutoffs[y] / cutoffs[o]), _sensitivity(odds / (1 + odds)))
    if least is None:
        return [wins]
    return [wins, (weights, math.log(_odds(least)), _sensitivity(least))]


def _averaged(
    y: int, o: int, k: int, cutoffs: Array, margin: float, least: float | None
) -> list[tuple[Array, float, float]]:
    weights = -(2 * margin if k == 2 else margin) / cutoffs
    weights[y] += 1 / cutoffs[y]
    weights[o] -= 1 / cutoffs[o]
    wins = (weights, 0.0, 1.0)
    if least is None:
        return [wins]
    own = np.zeros(k)
    own[y] = 1.0
    return [wins, (own, least, 1.0)]


def _odds(probability: float) -> float:
    return probability / (1 - probability)


def _sensitivity(probability: float) -> float:
    """Return the derivative of log-odds in the probability."""
    return 1 / max(1e-9, probability * (1 - probability))


def tangent_rows(
    form: OutputForm, criterion: TargetCriterion, targets: Targets, outputs: Array
) -> list[ScoreRow]:
    r"""Return inequalities that rule out the outputs of a rejected row, but no row that is decided as wanted.

    With the gaps :math:`g_k = z_y - z_k`, winning by a margin is
    :math:`e^{-g_o} + \epsilon (1 + \sum_k e^{-g_k}) \le 1` for each rival o, and a minimum probability q is
    :math:`\sum_k e^{-g_k} \le (1 - q) / q`. Both are convex, so their tangents are necessary conditions.
    """
    k = form.n_outputs
    if criterion.edges or form.averaged or k == 2:
        return []
    y = int(targets.y[0])
    rivals = np.array([o for o in range(k) if o != y])
    shift = np.log(np.array(criterion.cutoffs or [1.0] * k))
    gaps = outputs[y] - outputs[rivals]
    rows = []
    for place in range(len(rivals)):
        own = gaps - (shift[y] - shift[rivals])
        factors = criterion.margin + (np.arange(len(rivals)) == place)
        rows.append(_tangent(form, y, rivals, factors, own, 1 - criterion.margin, shift[y] - shift[rivals]))
    if targets.min_probability is not None:
        least = float(targets.min_probability[0])
        ones = np.ones(len(rivals))
        rows.append(_tangent(form, y, rivals, ones, gaps, 1 / _odds(least), np.zeros(len(rivals))))
    return [row for row in rows if row is not None]


def _tangent(
    form: OutputForm,
    y: int,
    rivals: npt.NDArray[np.int64],
    factors: Array,
    gaps: Array,
    most: float,
    shift: Array,
) -> ScoreRow | None:
    """Return the tangent of "the sum of factors times exp(-gap) is at most ``most``", if it is exceeded."""
    slopes = factors * np.exp(-gaps)
    if slopes.sum() <= most:
        return None
    scale = slopes.max()
    weights = np.zeros(form.n_outputs)
    weights[y] = slopes.sum() / scale
    weights[rivals] -= slopes / scale
    threshold = float(slopes.sum() - most + slopes @ (gaps + shift)) / scale
    slack = 2 * form.rounding(weights) + max(4 * form.probability_error, 1e-8)
    return ScoreRow(weights, threshold - slack, slack)
