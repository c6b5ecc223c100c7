"""Differentiable likenesses of models without gradients, on encoded rows: they lead a search, no more.

Boosted trees stand in for themselves, with soft splits, also behind preprocessing that is known exactly. A
model of any other kind is asked about a pool of rows, and a student of trees learns its answers. Reading
trees is never believed: the hard trees must answer as the model does, within 1e-6 of its probabilities or
values; within 1e-4 for XGBoost, which adds in single precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor, nn

from plausiflow.core import Frozen
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.models.sklearn.columns import Basis, Fitted, Refused, table_columns
from plausiflow.models.sklearn.comparison import TOLERANCE, Intake, answers_differ_by, changed_rows, own_rows
from plausiflow.models.sklearn.preprocessing import kind_of, transform
from plausiflow.models.surrogate_rows import pool
from plausiflow.models.trees.boosters import read_catboost, read_lightgbm, read_xgboost
from plausiflow.models.trees.cells import Cells, decided_by_levels
from plausiflow.models.trees.forest import Forest
from plausiflow.models.trees.relaxation import RelaxedForest
from plausiflow.models.trees.sklearn_trees import (
    read_gradient_boosting,
    read_hist_gradient_boosting,
    student,
    student_of_values,
)
from plausiflow.models.trees.splits import Sizes, tied
from plausiflow.tables import Encoder, Layout

__all__ = ["Surrogate", "own_trees", "pool", "restore_imitation", "restore_relaxed_trees", "student_of"]

SINGLE_TOLERANCE = 1e-4
"""How far hard trees may be from the answers of a model that adds in single precision."""
_TEMPERATURE, _COLDEST = 0.03, 1e-12


@dataclass(eq=False, kw_only=True, repr=False)
class Surrogate:
    """A differentiable likeness of a model that has no gradients, on encoded rows.

    Attributes:
        cells: Encoded rows ``(n, width)`` as the trees take them, ``(n, d)``, NaN where a cell is missing;
            keeps the graph.
        forest: Its trees, with soft splits.
        says: What it is, in words.
        n_outputs: How many logits of a classifier there are, or one, the value of a regressor.
        decided: Which encoded columns, where they are one, put a cell in a state such as a level or a zero,
            so that it is split for certain, shape ``(width, d)``; nothing where cells are only numbers.
        learned: What it is made of, besides the model: a student's trees, or the sizes of the model's own.
    """

    cells: nn.Module
    forest: RelaxedForest
    description: str
    n_outputs: int
    decided: Tensor | None = None
    learned: Mapping[str, Tensor] = field(default_factory=dict)
    _frozen: Frozen[_Composed] = field(init=False)

    def __post_init__(self) -> None:
        self._frozen = Frozen(_Composed(self.cells, self.forest, self.decided))

    def at(self, temperature: float) -> Callable[[Tensor], Tensor]:
        """Its outputs at a temperature, ``(n, width) -> (n, n_outputs)``.

        In x's dtype and on its device, computed in double precision; keeps the graph, and is frozen.
        """
        temperature = self.forest.at(temperature).temperature

        def outputs(x: Tensor) -> Tensor:
            rows = x.double()
            return self._frozen(rows).at(rows, temperature).to(x.dtype)

        return outputs

    def __repr__(self) -> str:
        return f"Surrogate({self.description}; {self.n_outputs} outputs)"


class _Composed(nn.Module):
    """A stand-in as one module."""

    decided: Tensor | None

    def __init__(self, cells: nn.Module, forest: RelaxedForest, decided: Tensor | None) -> None:
        super().__init__()
        self.cells, self.forest = cells, forest
        self.register_buffer("decided", None if decided is None else decided.double())

    def at(self, x: Tensor, temperature: float) -> Tensor:
        certain = None if self.decided is None else x.detach() @ self.decided > 0.5
        outputs: Tensor = self.forest.at(temperature)(self.cells(x), certain)
        return outputs


def own_trees(model: Fitted, encoder: Encoder, sample: pd.DataFrame) -> Surrogate:
    """The trees of a fitted model, relaxed, as a function of encoded rows.

    Args:
        model: HistGradientBoosting or GradientBoosting of scikit-learn, or an estimator of XGBoost, LightGBM
            or CatBoost; or a pipeline that ends in one. It is not changed.
        encoder: Of the table whose columns the model takes.
        sample: Some rows of the table, in the dtypes that the model is given, to compare answers on.

    Raises:
        Refused: Its trees, or what leads to them, cannot be read exactly; the message says what and why.
    """
    encoded = encoder.encode(sample)
    forest, cells, intake = _trees_of(model, encoder, sample)
    sizes = Sizes.of(forest, cells, encoder.layout, encoded.x[torch.from_numpy(encoded.usable)])
    made = _relaxed(forest, cells, sizes, encoder.layout)
    _compare(made, forest, sizes, model, intake, encoder, sample)
    return made


def restore_relaxed_trees(
    model: Fitted, encoder: Encoder, sample: pd.DataFrame, learned: Mapping[str, Tensor]
) -> Surrogate:
    """What :func:`own_trees` made of the same model before, from what it ``learned``; nothing is compared."""
    forest, cells, _ = _trees_of(model, encoder, sample)
    sizes = Sizes(learned["scales"], learned["steps"], learned["origins"])
    return _relaxed(forest, cells, sizes, encoder.layout)


def _trees_of(model: Fitted, encoder: Encoder, sample: pd.DataFrame) -> tuple[Forest, Cells, Intake]:
    """The trees of a model, what leads to them from encoded rows, and what the model takes."""
    steps, last = _unwrapped(model)
    forest = _read(last)
    intake, basis = _intake(model, encoder.schema.names), Basis(encoder.layout)
    dtype = intake.rows(sample).dtype if intake.as_array else None
    columns = table_columns(encoder, sample, intake.names, dtype, basis)
    for step in steps:
        columns = transform(step, columns, basis)
    if forest.n_features != len(columns):
        kind = type(last).__name__
        raise Refused(f"{kind} takes {forest.n_features} columns, and {len(columns)} lead to it")
    return forest, Cells(columns, basis, set(forest.feature.tolist())), intake


def _relaxed(forest: Forest, cells: Cells, sizes: Sizes, layout: Layout) -> Surrogate:
    relaxed = RelaxedForest(forest, sizes.scales, _TEMPERATURE, sizes.steps, sizes.origins, per_split=True)
    return Surrogate(
        cells=cells,
        forest=relaxed,
        description=f"its own {len(forest.root)} trees, relaxed",
        n_outputs=len(forest.base),
        decided=cells.decided(layout.width),
        learned={"scales": sizes.scales, "steps": sizes.steps, "origins": sizes.origins},
    )


def _unwrapped(model: Fitted) -> tuple[list[Fitted], Fitted]:
    """The preprocessing that leads to a model, and the model itself."""
    steps: list[Fitted] = []
    while type(model).__module__.partition(".")[0] == "sklearn":
        kind = kind_of(model)
        if kind == "Pipeline":
            steps += [step for _, step in model.steps[:-1]]
            model = model.steps[-1][1]
        elif kind == "FrozenEstimator":
            model = model.estimator
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        else:
            break
    return steps, model


def _intake(model: Fitted, names: tuple[str, ...]) -> Intake:
    """What a model takes of a table; CatBoost and LightGBM name it in ways of their own."""
    own = getattr(model, "feature_names_in_", getattr(model, "feature_names_", None))
    written = {name.replace(" ", "_"): name for name in names} | {name: name for name in names}
    if own is not None and all(name in written for name in own):
        return Intake(tuple(written[name] for name in own), as_array=False)
    return Intake.of(model, names)


def _read(model: Fitted) -> Forest:
    library, kind = type(model).__module__.partition(".")[0], type(model).__name__
    reader = _READERS.get((library, kind.removesuffix("Classifier").removesuffix("Regressor")))
    if reader is None:
        raise Refused(
            f"{kind} is no estimator whose trees can be read: HistGradientBoosting, GradientBoosting, "
            "XGBoost, LightGBM or CatBoost"
        )
    return reader(model)


def _compare(
    made: Surrogate,
    forest: Forest,
    sizes: Sizes,
    model: Fitted,
    intake: Intake,
    encoder: Encoder,
    sample: pd.DataFrame,
) -> None:
    """Refuse trees that do not answer as the model does, on rows of the table and on changed ones.

    Splits are so cold that they are hard, but off all ties, which a cell may miss by the rounding error of
    its decoding. Of changed rows those that a rounding error sends another way are left out.
    """
    kind, classifies = type(model).__name__, made.n_outputs > 1
    if classifies != hasattr(model, "predict_proba"):
        raise Refused(f"{kind} predicts through a link, but no probabilities of classes")
    for changed, frame in enumerate((own_rows(encoder, sample), changed_rows(encoder, sample))):
        encoded = encoder.encode(frame)
        kept = torch.from_numpy(encoded.usable)
        if changed:
            certain = None if made.decided is None else encoded.x @ made.decided > 0.5
            kept &= ~tied(forest, sizes, made.cells(encoded.x), certain)
        answers = made.at(_COLDEST)(encoded.x[kept])
        found = answers if classifies else answers[:, 0]
        difference = answers_differ_by(found, model, intake.rows(frame[kept.numpy()])) if len(found) else 0.0
        if not difference <= (SINGLE_TOLERANCE if forest.single_sums else TOLERANCE):
            raise Refused(f"{kind} and its trees as read differ by up to {difference:.1e} in their answers")


def student_of(x: Tensor, outputs: Tensor, layout: Layout, *, seed: int = 0) -> Surrogate:
    """A student of trees that imitates any model, relaxed.

    Args:
        x: Encoded rows, such as a :func:`pool`, shape ``(n, width)``.
        outputs: The model's probabilities for them, shape ``(n, k)``, a single one where it only gives
            labels; or the values of a regressor, shape ``(n,)``.
        layout: Of encoded rows.
        seed: Of the student.
    """
    if x.ndim != 2 or x.shape[1] != layout.width or outputs.ndim not in (1, 2) or len(outputs) != len(x):
        raise ShapeError(
            f"`x` must have shape (n, {layout.width}) and `outputs` (n, k) or (n,); "
            f"got {tuple(x.shape)} and {tuple(outputs.shape)}."
        )
    if outputs.ndim == 2:
        if not bool((outputs >= 0).all()):
            raise InvalidInputError("`outputs` must be probabilities, not negative and not NaN.")
        forest = student(x, outputs.double().log(), seed=seed)
    else:
        forest = student_of_values(x, outputs, seed=seed)
    return restore_imitation(forest, layout)


def restore_imitation(forest: Forest, layout: Layout) -> Surrogate:
    """A student of trees on encoded rows, relaxed."""
    if forest.n_features != layout.width:
        raise ShapeError(f"`forest` must split {layout.width} columns, as encoded; got {forest.n_features}.")
    steps = torch.zeros(layout.width, dtype=torch.float64)
    for block in layout.blocks:
        if block.scale is not None:
            steps[block.number] = block.scale.encoded_step
    return Surrogate(
        cells=nn.Identity(),
        forest=RelaxedForest(forest, torch.ones_like(steps), _TEMPERATURE, steps),
        description=f"a student of {len(forest.root)} trees, relaxed",
        n_outputs=len(forest.base),
        decided=decided_by_levels(layout),
        learned=forest.state(),
    )


_READERS: dict[tuple[str, str], Callable[[Fitted], Forest]] = {
    ("sklearn", "HistGradientBoosting"): read_hist_gradient_boosting,
    ("sklearn", "GradientBoosting"): read_gradient_boosting,
    ("xgboost", "XGB"): read_xgboost,
    ("xgboost", "XGBRF"): read_xgboost,
    ("lightgbm", "LGBM"): read_lightgbm,
    ("catboost", "CatBoost"): read_catboost,
}
