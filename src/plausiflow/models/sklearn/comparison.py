"""Whether a converted model answers as the model itself: on rows of a table, and on changed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.models.sklearn.columns import Fitted, Refused, ask
from plausiflow.tables import Encoder, precision

TOLERANCE = 1e-6
"""How far answers of a conversion may be from the model's own: probabilities, or numbers over their size."""
_ROWS = 256
_BEYOND = 0.25


@dataclass(frozen=True)
class Intake:
    """What a fitted model takes: columns of the table, by name or as an array.

    Attributes:
        names: The columns, in its order.
        as_array: It was fitted on an array, without names.
    """

    names: tuple[str, ...]
    as_array: bool

    @classmethod
    def of(cls, model: Fitted, names: Sequence[str]) -> Intake:
        """What a model takes of a table with columns of these names.

        Raises:
            Refused: The table does not have it.
        """
        if hasattr(model, "feature_names_in_"):
            wanted = tuple(map(str, model.feature_names_in_))
            absent = [name for name in wanted if name not in names]
            if absent:
                raise Refused(f"the model takes columns that the table does not have: {', '.join(absent)}")
            return cls(wanted, as_array=False)
        expected = getattr(model, "n_features_in_", len(names))
        if expected != len(names):
            raise Refused(
                f"the model takes an array of {expected} columns without names; the table has {len(names)}. "
                "Fit it on a DataFrame"
            )
        return cls(tuple(names), as_array=True)

    def rows(self, frame: pd.DataFrame) -> Any:  # noqa: ANN401
        """Rows of the table as the model takes them, a table or an array."""
        chosen = frame[list(self.names)]
        return chosen.to_numpy() if self.as_array else chosen


def require_same(
    answers: Callable[[Tensor], Tensor], model: Fitted, intake: Intake, encoder: Encoder, sample: pd.DataFrame
) -> None:
    """Refuse answers that are not the model's own; what is given is as in :func:`largest_difference`.

    Raises:
        Refused: They differ by more than 1e-6, or the model cannot be asked.
    """
    difference = largest_difference(answers, model, intake, encoder, sample)
    if not difference <= TOLERANCE:
        single = "; it is given single precision, double may do" if _is_single(intake.rows(sample)) else ""
        raise Refused(
            f"{type(model).__name__} and its conversion differ by up to {difference:.1e} in their answers"
            + single
        )


def _is_single(rows: Any) -> bool:  # noqa: ANN401
    dtypes = rows.dtypes if isinstance(rows, pd.DataFrame) else [rows.dtype]
    return all(precision(dtype).itemsize < 8 for dtype in dtypes)


def largest_difference(
    answers: Callable[[Tensor], Tensor], model: Fitted, intake: Intake, encoder: Encoder, sample: pd.DataFrame
) -> float:
    """How far answers are from the model's own, at most.

    Of a classifier, that is a difference of probabilities, or of its decision function where it has none; of
    a regressor a difference of its predictions. It is divided by the size of the model's own answer where
    that is above one.

    Args:
        answers: For encoded rows: logits ``(n, k)``, whose softmax is compared where the model has
            probabilities, or numbers ``(n,)``.
        model: The fitted classifier or regressor.
        intake: What it takes.
        encoder: Of the table.
        sample: Rows of the table.

    Raises:
        Refused: The model cannot be asked.
    """
    differences = []
    for frame in (own_rows(encoder, sample), changed_rows(encoder, sample)):
        encoded = encoder.encode(frame)
        with torch.no_grad():
            found = answers(encoded.x[torch.from_numpy(encoded.usable)])
        differences.append(answers_differ_by(found, model, intake.rows(frame[encoded.usable])))
    return float(np.max(differences))


def answers_differ_by(found: Tensor, model: Fitted, rows: Any) -> float:  # noqa: ANN401
    """How far answers for rows are from the model's own, at most; see :func:`largest_difference`."""
    if found.ndim == 1:
        answers, own = ask(model, "predict", rows), found.numpy()
        answers = answers[:, 0] if answers.shape[1:] == (1,) else answers  # fitted on a column of a table
    elif hasattr(model, "predict_proba"):
        answers, own = ask(model, "predict_proba", rows), found.softmax(dim=1).numpy()
    else:
        answers = ask(model, "decision_function", rows)
        own = (found[:, 1] - found[:, 0] if answers.ndim == 1 else found).numpy()
    if own.shape != answers.shape:
        raise Refused(f"{type(model).__name__} answers with shape {answers.shape}, not {own.shape}")
    return float((np.abs(own - answers) / np.maximum(1, np.abs(answers))).max())


def _some(encoder: Encoder, sample: pd.DataFrame) -> pd.DataFrame:
    """Rows of the sample that can be encoded, spread over it, numbered anew."""
    usable = np.flatnonzero(encoder.encode(sample).usable)
    if not len(usable):
        raise Refused("the sample has no row that can be encoded, to compare the model's answers on")
    chosen = usable[np.linspace(0, len(usable) - 1, min(len(usable), _ROWS)).astype(np.int64)]
    return sample.iloc[chosen].reset_index(drop=True)


def own_rows(encoder: Encoder, sample: pd.DataFrame) -> pd.DataFrame:
    """Rows of the sample as they come back from being encoded."""
    rows = _some(encoder, sample)
    return encoder.decode(encoder.encode(rows).x, like=rows)


def changed_rows(encoder: Encoder, sample: pd.DataFrame) -> pd.DataFrame:
    """The rows with other numbers, also beyond the training range, at every level in turn.

    Missing cells stay, for rows write them in their own way; only where none is missing some become so.
    """
    some, layout = _some(encoder, sample), encoder.layout
    n = max([_ROWS, *(len(block.levels) for block in layout.with_levels)])
    like = some.iloc[np.resize(np.arange(len(some)), n)].reset_index(drop=True)
    x = encoder.encode(like).x
    codes, generator = layout.codes(x), torch.Generator().manual_seed(0)
    numbers = torch.rand(n, len(layout.numbers), generator=generator, dtype=x.dtype)
    numbers[::2] = numbers[::2] * (1 + 2 * _BEYOND) - _BEYOND
    x[:, layout.numbers] = numbers
    for j, block in enumerate(layout.with_levels):
        closed = torch.tensor(block.closed)
        stays = closed[codes[:, j]]
        new = torch.randperm(n, generator=generator) % len(block.levels)
        codes[:, j] = torch.where(stays | (closed[new] & stays.any()), codes[:, j], new)
    return encoder.decode(layout.with_codes(x, codes), like=like)
