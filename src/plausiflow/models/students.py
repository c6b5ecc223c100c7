"""Students: trees that learn what retrained models without gradients say together.

A search without gradients follows soft trees. Those of the model itself do not know where retrained models
disagree, so two more are trained: on the mean and on the deviation of the retrained models' margins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from plausiflow.models.joint import JointModels
from plausiflow.models.surrogate import Surrogate, restore_trained_surrogate
from plausiflow.models.surrogate_rows import sample_surrogate_rows
from plausiflow.models.trees.forest import Forest, join_forests
from plausiflow.models.trees.imitation import imitate_regressor
from plausiflow.tables import Layout

MIN_ROWS, MAX_ROWS, BATCH = 10_000, 40_000, 4096
"""Rows that students learn from: four times the training rows, within these bounds; and rows at once."""
CLIP = 10.0
"""Margins beyond this many logits are as good as certain."""


@dataclass(frozen=True, eq=False)
class Students:
    """The mean and the deviation of the margins of several models, as soft trees of encoded rows.

    Attributes:
        surrogate: The trees; its outputs are the means, then the deviations.
    """

    surrogate: Surrogate

    def at(self, temperature: float) -> Callable[[Tensor], Tensor]:
        """Return means and deviations at a temperature, ``(n, width) -> (n, 2 * columns)``."""
        return self.surrogate.at(temperature)

    def state(self) -> Mapping[str, Tensor]:
        """Return the trees as tensors."""
        return self.surrogate.learned

    @classmethod
    def restore(cls, state: Mapping[str, Tensor], layout: Layout) -> Students:
        """Return the students that :meth:`state` described."""
        return cls(restore_trained_surrogate(Forest.restore(state), layout))


def train_students(
    joint: JointModels, x: Tensor, classes: Tensor, layout: Layout, *, random_state: int = 0
) -> Students:
    """Ask several models about a sample of rows, and train trees on what they say together.

    Args:
        joint: The models.
        x: Encoded training rows, shape ``(n, width)``.
        classes: What the explained model decides for them, shape ``(n,)``.
        layout: Layout of encoded rows.
        random_state: Seed of the sample and of the trees.
    """
    size = min(MAX_ROWS, max(MIN_ROWS, 4 * len(x)))
    rows = sample_surrogate_rows(x, classes, layout, size=size, random_state=random_state)
    margins = torch.cat([_margins(joint, part) for part in rows.split(BATCH)])
    known = margins.isfinite().flatten(1).all(dim=1)
    rows, margins = rows[known], margins[known]
    targets = [*margins.mean(dim=1).unbind(dim=1), *margins.std(dim=1).unbind(dim=1)]
    forests = [imitate_regressor(rows, target, random_state=random_state) for target in targets]
    forest = join_forests(forests, same_columns=True)
    return Students(restore_trained_surrogate(forest, layout))


def _margins(joint: JointModels, x: Tensor) -> Tensor:
    """Return margins ``(n, models, columns)``: of class 1, of each of several classes, or a number."""
    flat = joint.predict(x, None)
    outputs = flat.view(len(flat), len(joint), -1)
    if joint.n_classes == 0:
        return outputs
    outputs = outputs.clamp_min(-4 * CLIP)
    if joint.n_classes == 2:
        return (outputs[:, :, 1:] - outputs[:, :, :1]).clamp(-CLIP, CLIP)
    best, second = outputs.topk(2, dim=2).values.split(1, dim=2)
    return (outputs - torch.where(outputs == best, second, best)).clamp(-CLIP, CLIP)
