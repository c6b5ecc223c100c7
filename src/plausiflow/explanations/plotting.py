"""The figure of one answer: how far each change moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plausiflow import plots
from plausiflow.errors import InvalidInputError
from plausiflow.explanations.changes import relative_moves
from plausiflow.explanations.formatting import FeatureFormatter
from plausiflow.explanations.sentences import row_sentences, target_sentence

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations


def plot_answer(result: Explanations, i: int, rank: int) -> Any:  # noqa: ANN401
    """Plot the changes of one answer of the row at position ``i``; see :meth:`Explanations.plot`."""
    answers = result.answer_range(i)
    if not 1 <= rank <= len(answers):
        (sentence,) = row_sentences(result, range(i, i + 1))
        raise InvalidInputError(
            f"`rank` must be 1 to {len(answers)} for the row at position {i}; got {rank!r}."
            if len(answers)
            else f"The row at position {i} has no answer to plot. {sentence}"
        )
    changes = result.changed.select(answers[rank - 1 : rank])
    formatters = [FeatureFormatter(result.features[j]) for j in changes.column]
    cells = list(zip(formatters, changes.before, changes.after, strict=True))
    figure = plots.new_figure(7, 1.2 + 0.45 * max(1, len(changes)))
    plots.draw_moves(
        figure.subplots(),
        names=[formatter.name for formatter in formatters],
        moves=relative_moves(changes, result.features).tolist(),
        texts=[formatter.format_transition(before, after) for formatter, before, after in cells],
        title=target_sentence(result.outcome, result.verdicts["target"].iloc[i]),
    )
    return figure
