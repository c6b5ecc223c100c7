"""Whether a converted model answers as the model itself: on rows of a table, and on changed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.classifiers.columns import Fitted, Refused, ask
from plausiflow.data.encoding import Encoder

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


def largest_difference(
    logits: Callable[[Tensor], Tensor], model: Fitted, intake: Intake, encoder: Encoder, sample: pd.DataFrame
) -> float:
    """How far answers are from the model's own, at most.

    That is a difference of probabilities; where the model has none a difference of its decision function,
    divided by its size where that is above one.

    Args:
        logits: Of encoded rows; with probabilities their softmax is compared.
        model: The fitted classifier.
        intake: What it takes.
        encoder: Of the table.
        sample: Rows of the table.

    Raises:
        Refused: The model cannot be asked.
    """
    differences = []
    for frame in (_own_rows(encoder, sample), _changed_rows(encoder, sample)):
        encoded = encoder.encode(frame)
        with torch.no_grad():
            found = logits(encoded.x[torch.from_numpy(encoded.usable)])
        differences.append(_difference(found, model, intake.rows(frame[encoded.usable])))
    return float(np.max(differences))


def _difference(logits: Tensor, model: Fitted, rows: Any) -> float:  # noqa: ANN401
    if hasattr(model, "predict_proba"):
        answers, own = ask(model, "predict_proba", rows), logits.softmax(dim=1).numpy()
    else:
        answers = ask(model, "decision_function", rows)
        own = (logits[:, 1] - logits[:, 0] if answers.ndim == 1 else logits).numpy()
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


def _own_rows(encoder: Encoder, sample: pd.DataFrame) -> pd.DataFrame:
    rows = _some(encoder, sample)
    return encoder.decode(encoder.encode(rows).x, like=rows)


def _changed_rows(encoder: Encoder, sample: pd.DataFrame) -> pd.DataFrame:
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
