"""What users ask of rows: read, checked, and with the rules that are for these rows only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import Immutable, Rule, Rules
from plausiflow.densities import RowScores
from plausiflow.errors import InvalidInputError
from plausiflow.models import BlackBox, EncodedModel
from plausiflow.search.criterion import Targets
from plausiflow.search.engine import Engine
from plausiflow.tables import Encoded, Encoder
from plausiflow.validation import is_whole, number, raise_unless

MOST_ANSWERS = 48
SMALLEST = -745.0
"""About the logarithm of the smallest number above zero."""


def check_settings(given: Mapping[str, Any]) -> None:
    """Raise unless settings of an explainer can be used; every one that cannot is named."""
    confidence, sparsity, seed = given["confidence"], given["sparsity"], given["random_state"]
    judges, model_rows = given["judges"], given["model_rows"]
    fine = {
        "plausibility": ("a quantile in [0, 1]", 0 <= number(given["plausibility"]) <= 1),
        "confidence": (
            "a share between 0 and 1, or None",
            confidence is None or 0 < number(confidence) < 1,
        ),
        "sparsity": ("a share of 0 or more, or None", sparsity is None or number(sparsity) >= 0),
        "margin": ("in [0, 0.5)", 0 <= number(given["margin"]) < 0.5),
        "judges": ("a whole number, 0 or more", is_whole(judges) and judges >= 0),
        "model_rows": ("a whole number, 1 or more", is_whole(model_rows) and model_rows >= 1),
        "labels": ("'given', 'model' or 'bayes'", given["labels"] in ("given", "model", "bayes")),
        "random_state": ("a whole number from 0 to 2**32 - 1", is_whole(seed) and 0 <= seed < 2**32),
    } | {
        name: ("a mapping from names of columns, or None", isinstance(given[name], Mapping | None))
        for name in ("weights", "kinds", "orders")
    }
    raise_unless(fine, {name: given[name] for name in fine})


def check_asked(
    *,
    k: object,
    time_limit: object,
    relaxed: object,
    min_probability: object,
    second_opinion: object,
    device: object,
    numbers: bool,
) -> None:
    """Raise unless arguments of ``explain`` can be used; ``numbers``: of a model that predicts one."""
    fine = {
        "k": (f"a whole number from 1 to {MOST_ANSWERS}", is_whole(k) and 1 <= number(k) <= MOST_ANSWERS),
        "time_limit": ("seconds, 0 or more, or None", time_limit is None or number(time_limit) >= 0),
        "relaxed": ("True or False", isinstance(relaxed, bool | np.bool_)),
        "second_opinion": ("True or False", isinstance(second_opinion, bool | np.bool_)),
        "device": ("'auto', 'cpu', or a CUDA device that is there, such as 'cuda'", is_device(device)),
        "min_probability": (
            "a probability between 0 and 1, or None, and None where a number is predicted",
            min_probability is None or (0 < number(min_probability) < 1 and not numbers),
        ),
    }
    given = {
        "k": k,
        "time_limit": time_limit,
        "relaxed": relaxed,
        "second_opinion": second_opinion,
        "device": device,
        "min_probability": min_probability,
    }
    raise_unless(fine, given)


def is_device(name: object) -> bool:
    """Whether searches can run there."""
    if name in ("auto", "cpu"):
        return True
    try:
        device = torch.device(name)  # type: ignore[call-overload]
    except (RuntimeError, TypeError):
        return False
    return device.type == "cuda" and (device.index or 0) < torch.cuda.device_count()


def with_rules(finder: Engine, constraints: Sequence[Rule]) -> Engine:
    """The finder, with more rules in force."""
    if isinstance(constraints, str) or not isinstance(constraints, Sequence):
        raise InvalidInputError(f"`constraints` must be a list of rules; got {constraints!r}.")
    if not constraints:
        return finder
    if any(isinstance(rule, Immutable) for rule in constraints):
        raise InvalidInputError(
            "`constraints` of `explain` must not hold Immutable: what plausible means was learned with the "
            "features that never change. Name features that these rows keep with `locked`."
        )
    rules = finder.rules
    both = Rules([*rules.constraints, *constraints], rules.schema, rules.layout)
    return replace(finder, rules=both)


def read_rows(encoder: Encoder, model: EncodedModel | BlackBox, rows: pd.DataFrame) -> tuple[Encoded, Tensor]:
    """Encoded rows and the model's answers; a row that has none has a problem."""
    encoded = encoder.encode(rows)
    shape = (len(rows), len(model.labels)) if model.labels else (len(rows),)
    outputs = torch.full(shape, torch.nan, dtype=torch.float64)
    usable = torch.from_numpy(encoded.usable)
    own = rows[encoded.usable]
    if encoder.missing == "impute":
        own = encoder.decode(encoded.x[usable], like=own)
    outputs[usable] = model.answers(encoded.x[usable], own)
    unknown = outputs.isnan() if outputs.ndim == 1 else outputs.isnan().any(dim=1)
    undecided = encoded.usable & unknown.numpy()
    what = "probabilities" if model.labels else "prediction"
    encoded.problems[undecided] = (
        f"the model gives no {what} for it; a number may be too far from the training range"
    )
    return encoded, outputs.nan_to_num(nan=0.0, neginf=SMALLEST)


@torch.no_grad()
def scores(finder: Engine, encoded: Encoded, wishes: Sequence[Targets]) -> npt.NDArray[Any]:
    """Nats above the threshold for what is wanted of rows, margins apart; NaN where unreadable, ``(n,)``."""
    if len(wishes) != 1:
        raise InvalidInputError("`target` must name one outcome for each row; 'other' leaves it open.")
    usable = torch.from_numpy(encoded.usable)
    x, y = encoded.x[usable], wishes[0].y[usable]
    values = np.full(len(encoded.usable), np.nan)
    guide = RowScores.without_margin(finder.plausibility, x, y)
    values[encoded.usable] = guide.score(x, torch.arange(len(x))).numpy()
    return values
