"""Figures of a result: changes of one row and of all rows, cost against plausibility, and groups.

Every function draws into the axes that it is given, or into a new figure, and returns the axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from plausiflow import plots
from plausiflow.errors import InvalidInputError
from plausiflow.explanations.audit import MEASURE_NAMES, AuditSettings, group_values
from plausiflow.explanations.changes import Changes, relative_moves
from plausiflow.explanations.formatting import FeatureFormatter, format_value, is_missing_value
from plausiflow.explanations.resampling import bootstrap_interval
from plausiflow.explanations.sentences import row_sentences
from plausiflow.tables import FloatArray

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

NEEDED_FIRST = {"needed": 0, "accompanying": 1, "": 1}
MOST_FEATURES = 20


def plot(result: Explanations, i: int, *, rank: int = 1, axes: Any = None) -> Any:  # noqa: ANN401
    """Plot the changes of one answer of the row at position ``i``, in units of each feature's range.

    Args:
        result: The result.
        i: Position of the row.
        rank: Which of its answers.
        axes: Where to draw; by default a new figure.

    Returns:
        The axes.

    Raises:
        InvalidInputError: The row has no answer of this rank.
        MissingExtraError: matplotlib is not installed.
    """
    i = result._position(i)
    changes = _changes_of(result, i, rank)
    formatters = [FeatureFormatter(result.features[j]) for j in changes.column]
    cells = list(zip(formatters, changes.before, changes.after, strict=True))
    axes = plots.new_axes(7, 1.2 + 0.45 * max(1, len(changes))) if axes is None else axes
    plots.draw_moves(
        axes,
        names=[formatter.name for formatter in formatters],
        moves=relative_moves(changes, result.features).tolist(),
        texts=[formatter.format_transition(before, after) for formatter, before, after in cells],
        title=decision_title(result, i),
    )
    return axes


def plot_changes(result: Explanations, i: int, *, rank: int = 1, axes: Any = None) -> Any:  # noqa: ANN401
    """Plot what each change of an answer does to the probability of the target, one after the other.

    The changes that the decision needs come first. What a change does depends on those before it. For a
    predicted number, the plot shows the prediction.

    Args:
        result: The result.
        i: Position of the row.
        rank: Which of its answers.
        axes: Where to draw; by default a new figure.

    Returns:
        The axes.

    Raises:
        InvalidInputError: The row has no answer of this rank, or the result was made without a model.
        MissingExtraError: matplotlib is not installed.
    """
    i = result._position(i)
    changes = _changes_of(result, i, rank)
    answer = result.answer_range(i)[rank - 1]
    roles = result.roles_of(range(answer, answer + 1))["role"].map(NEEDED_FIRST).to_numpy()
    order = np.argsort(roles, kind="stable").tolist()
    levels = _levels(result, i, answer, changes, order)
    names = []
    for k in order:
        formatter = FeatureFormatter(result.features[changes.column[k]])
        names.append(formatter.format_change(changes.before[k], changes.after[k]))
    axes = plots.new_axes(7, 1.4 + 0.4 * len(names)) if axes is None else axes
    target, is_share = format_value(result.verdicts["target"].iloc[i]), bool(result.labels)
    plots.draw_steps(
        axes,
        names=names,
        levels=levels.tolist(),
        title=decision_title(result, i),
        label=f"probability of {target}" if is_share else result.outcome,
        as_share=is_share,
    )
    return axes


def plot_population(result: Explanations, *, axes: Any = None) -> Any:  # noqa: ANN401
    """Plot the direction and the size of every change of every found row, one line per feature.

    A dot is the change of one row by its best answer, in units of the feature's range; a change to another
    category is at zero. The features that change most often come first, at most twenty.

    Args:
        result: The result.
        axes: Where to draw; by default a new figure.

    Returns:
        The axes.

    Raises:
        InvalidInputError: No row is found.
        MissingExtraError: matplotlib is not installed.
    """
    best = result.best[result.is_found]
    if len(best) == 0:
        raise InvalidInputError("There is no answer to plot: no row has the status `found`.")
    shown = np.isin(result.changed.answer, best)
    table = pd.DataFrame(
        {
            "feature": result.rows.columns.take(result.changed.column[shown]),
            "move": relative_moves(result.changed, result.features)[shown],
        }
    )
    counts = table["feature"].value_counts().head(MOST_FEATURES)
    axes = plots.new_axes(7, 1.4 + 0.35 * len(counts)) if axes is None else axes
    moves = [table.loc[table["feature"] == name, "move"].tolist() for name in counts.index]
    plots.draw_swarm(
        axes,
        names=[f"{name} ({count:,})" for name, count in counts.items()],
        moves=moves,
        title=f"What changes in {len(best):,} rows",
    )
    return axes


def plot_tradeoff(result: Explanations, i: int | None = None, *, axes: Any = None) -> Any:  # noqa: ANN401
    """Plot cost against plausibility: all answers of one row, or the best answer of every row.

    A dot is hollow if not all independent checks accept the answer.

    Args:
        result: The result.
        i: Position of a row, whose answers are numbered; None for all rows.
        axes: Where to draw; by default a new figure.

    Returns:
        The axes.

    Raises:
        InvalidInputError: There is no answer to plot, or the answers have no plausibility score.
        MissingExtraError: matplotlib is not installed.
    """
    if i is None:
        shown = result.best[result.best >= 0]
        names, title = [""] * len(shown), f"Cost against plausibility, {len(shown):,} rows"
    else:
        i = result._position(i)
        shown = np.array([*result.answer_range(i)], dtype=np.int64)
        names, title = [str(rank) for rank in result.rank[shown]], decision_title(result, i)
    figures = result.figures.iloc[shown]
    if not len(figures) or not np.isfinite(figures["score"].to_numpy(np.float64)).any():
        raise InvalidInputError("There is no answer with a plausibility score to plot.")
    axes = plots.new_axes(6, 4) if axes is None else axes
    plots.draw_tradeoff(
        axes,
        costs=figures["cost"].tolist(),
        scores=figures["score"].tolist(),
        sure=[not share < 1 for share in figures["judged"].tolist()],
        names=names,
        title=title,
    )
    return axes


def plot_groups(
    result: Explanations,
    by: str | Sequence[str] | Mapping[str, Sequence[Any]],
    *,
    measure: str = "cost",
    axes: Any = None,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Plot the mean of a measure in each group of rows, with a bootstrap interval; see :meth:`audit`.

    Args:
        result: The result.
        by: A column, several columns, or one value per row by name.
        measure: ``found`` (the share with an answer), ``cost``, ``changes``, ``plausibility`` or ``lasting``.
        axes: Where to draw; by default a new figure.

    Returns:
        The axes.

    Raises:
        InvalidInputError: ``by`` or ``measure`` is unknown, or no group has a value.
        MissingExtraError: matplotlib is not installed.
    """
    members, measures = group_values(result, by)
    if measure not in measures:
        raise InvalidInputError(f"`measure` must be one of {', '.join(measures)}; got {measure!r}.")
    values, rng = measures[measure], np.random.default_rng(0)
    own = {label: values[mask & ~np.isnan(values)] for label, mask in members.items()}
    own = {label: known for label, known in own.items() if len(known)}
    if not own:
        raise InvalidInputError("There is no group to plot: no row has a value of this measure.")
    samples, confidence = AuditSettings.samples, AuditSettings.confidence
    intervals = [bootstrap_interval(known, np.zeros(1), samples, confidence, rng) for known in own.values()]
    axes = plots.new_axes(7, 1.4 + 0.4 * len(own)) if axes is None else axes
    plots.draw_means(
        axes,
        names=[f"{label} ({len(known):,})" for label, known in own.items()],
        means=[float(known.mean()) for known in own.values()],
        intervals=intervals,
        title=f"{MEASURE_NAMES[measure].capitalize()}, by group",
        label=f"mean, with an interval at {100 * confidence:.0f} %",
        as_share=measure in ("found", "lasting"),
    )
    return axes


def _changes_of(result: Explanations, i: int, rank: int) -> Changes:
    """Return the changes of one answer; raise an error if no answer has this rank."""
    answers = result.answer_range(i)
    if not 1 <= rank <= len(answers):
        (sentence,) = row_sentences(result, range(i, i + 1))
        raise InvalidInputError(
            f"`rank` must be 1 to {len(answers)} for the row at position {i}; got {rank!r}."
            if len(answers)
            else f"The row at position {i} has no answer to plot. {sentence}"
        )
    return result.changed.select(answers[rank - 1 : rank])


def decision_title(result: Explanations, i: int) -> str:
    """Return the decision now and the one that the changes would bring."""
    verdict = result.verdicts.iloc[i]
    predicted, target = verdict["predicted"], verdict["target"]
    if is_missing_value(target):
        return f"{result.outcome}: what would change it"
    wanted = f"would be {format_value(target)} with these changes"
    if is_missing_value(predicted) or not result.labels:
        return f"{result.outcome} {wanted}"
    return f"{result.outcome} is {format_value(predicted)}, {wanted}"


def _levels(result: Explanations, i: int, answer: int, changes: Changes, order: list[int]) -> FloatArray:
    """Return the probability of the target, or the prediction, before and after each change."""
    known = result.certifier
    if known is None or known.engine.model is None:
        raise InvalidInputError("This result has no model, which `plot_changes` needs. Use `plot`.")
    after = result.answers.iloc[[answer]].set_axis([0], axis=0)
    steps = [result.rows.iloc[[i]].set_axis([0], axis=0)]
    for k in order:
        name = result.rows.columns[changes.column[k]]
        steps.append(steps[-1].assign(**{name: after[name]}))
    frame = pd.concat(steps, ignore_index=True)
    x = known.encoder.encode(frame).x
    outputs = known.engine.model.predict_outputs(x, frame)
    if not result.labels:
        return np.asarray(outputs.cpu().numpy(), dtype=np.float64)
    k = result.labels.index(result.verdicts["target"].iloc[i])
    return np.asarray(outputs[:, k].exp().cpu().numpy(), dtype=np.float64)
