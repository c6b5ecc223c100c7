"""Differentiable surrogates of models without gradients, on encoded rows. They only guide a search.

Boosted trees are their own surrogate, with soft splits, also behind preprocessing that can be converted
exactly. For any other model, trees are trained on its predictions for a sample of rows. Trees that were read
are always checked: with hard splits they must predict as the model does, within 1e-6 of its probabilities or
values, and within 1e-4 for XGBoost, which adds in single precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd
import torch
from torch import Tensor, nn

from plausiflow.core import Frozen, Pullback
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.models.sklearn.columns import Basis, Fitted, InputFormat, UnsupportedModelError, table_columns
from plausiflow.models.sklearn.comparison import (
    TOLERANCE,
    perturbed_rows,
    prediction_difference,
    round_trip_rows,
)
from plausiflow.models.sklearn.preprocessing import sklearn_class_name, transform_columns
from plausiflow.models.trees.cells import Cells, join_cells, level_state_matrix
from plausiflow.models.trees.forest import Forest, join_forests
from plausiflow.models.trees.imitation import imitate_classifier, imitate_regressor
from plausiflow.models.trees.level_sets import LevelSets
from plausiflow.models.trees.readers import (
    read_catboost,
    read_gradient_boosting,
    read_hist_gradient_boosting,
    read_lightgbm,
    read_xgboost,
)
from plausiflow.models.trees.relaxation import RelaxedForest
from plausiflow.models.trees.splits import SplitScales, ambiguous_rows, off_values
from plausiflow.tables import Encoder, Layout

_SINGLE_PRECISION_TOLERANCE = 1e-4
_TEMPERATURE, _HARD_TEMPERATURE = 0.03, 1e-12


@dataclass(eq=False, kw_only=True, repr=False)
class Surrogate:
    """A differentiable surrogate of a model without gradients, on encoded rows.

    ``state_matrix``, shape ``(width, d)``, is one where an encoded column puts a cell in a state, such as a
    level or a zero, so that its splits are hard; None if cells are only numbers. ``learned`` is what is
    needed to restore the surrogate, besides the model: trained trees, or the split scales of the model's own
    trees.
    """

    cells: nn.Module  # From encoded rows to the inputs of the trees ``(n, d)``, NaN where a cell is missing.
    forest: RelaxedForest
    description: str
    n_outputs: int  # Number of logits of a classifier; 1 for a regressor.
    state_matrix: Tensor | None = None
    learned: Mapping[str, Tensor] = field(default_factory=dict)
    own_trees: Forest | None = None  # The trees of the model itself; None if they were trained to imitate it.
    _frozen: Frozen[_SurrogateModule] = field(init=False)

    def __post_init__(self) -> None:
        self._frozen = Frozen(_SurrogateModule(self.cells, self.forest, self.state_matrix))

    def at(self, temperature: float) -> Callable[[Tensor], Tensor]:
        """Return the outputs at a temperature, ``(n, width) -> (n, n_outputs)``; differentiable.

        The result has x's dtype and device. It is computed in double precision with frozen weights.
        """
        temperature = self.forest.with_temperature(temperature).temperature

        def outputs(x: Tensor) -> Tensor:
            rows = x.double()
            return self._frozen(rows).at(rows, temperature).to(x.dtype)

        return outputs

    def value_and_grad_at(self, temperature: float) -> Callable[[Tensor], tuple[Tensor, Pullback]] | None:
        """Return the outputs at a temperature with their pullback; None if only autograd has it."""
        if not self._frozen.module.has_closed_form:
            return None
        temperature = self.forest.with_temperature(temperature).temperature

        def value_and_grad(x: Tensor) -> tuple[Tensor, Pullback]:
            rows = x.double()
            outputs, pullback = self._frozen(rows).value_and_grad(rows, temperature)
            return outputs.to(x.dtype), lambda gradient: pullback(gradient.double()).to(x.dtype)

        return value_and_grad

    @torch.no_grad()
    def exact(self, x: Tensor) -> Tensor:
        """Return what the model itself returns for encoded rows, by its own trees, ``(n, n_outputs)``.

        They were compared with the model when they were read.
        """
        assert self.own_trees is not None
        rows = x.double()
        return self.own_trees.values(self._frozen(rows).cells(rows))

    def __repr__(self) -> str:
        return f"Surrogate({self.description}; {self.n_outputs} outputs)"


class JoinedTrees:
    """What several models return for encoded rows, by their own trees, ``(n, models * k)``, in one walk."""

    def __init__(self, surrogates: Sequence[Surrogate]) -> None:
        forests = [own.own_trees for own in surrogates if own.own_trees is not None]
        self._forest = join_forests(forests)
        self._cells = [own.cells for own in surrogates]
        first, columns = self._cells[0], [cells for cells in self._cells if isinstance(cells, Cells)]
        self._joined = None
        if isinstance(first, Cells) and not any(len(cells.basis.added) for cells in columns):
            self._joined = join_cells(columns)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs of encoded rows."""
        rows = x.double()
        parts = [self._joined(rows)] if self._joined else [cells(rows) for cells in self._cells]
        return self._forest.values(torch.cat(parts, dim=1))


class _SurrogateModule(nn.Module):
    """The parts of a surrogate as one module."""

    state_matrix: Tensor | None

    def __init__(self, cells: nn.Module, forest: RelaxedForest, state_matrix: Tensor | None) -> None:
        super().__init__()
        self.cells, self.forest = cells, forest
        self.register_buffer("state_matrix", None if state_matrix is None else state_matrix.double())

    def at(self, x: Tensor, temperature: float) -> Tensor:
        outputs: Tensor = self.forest.with_temperature(temperature)(self.cells(x), self._hard(x))
        return outputs

    @property
    def has_closed_form(self) -> bool:
        """Whether :meth:`value_and_grad` can be computed."""
        return not isinstance(self.cells, Cells) or self.cells.has_closed_form

    def value_and_grad(self, x: Tensor, temperature: float) -> tuple[Tensor, Pullback]:
        """Return the outputs at a temperature and their pullback."""
        forest = self.forest.with_temperature(temperature)
        if not isinstance(self.cells, Cells):
            return forest.value_and_grad(x, self._hard(x))
        cells, pull_cells = self.cells.value_and_grad(x)
        outputs, pull = forest.value_and_grad(cells, self._hard(x))
        return outputs, lambda gradient: pull_cells(pull(gradient))

    def _hard(self, x: Tensor) -> Tensor | None:
        """Return which cells are in a state, so that their splits are hard."""
        return None if self.state_matrix is None else x.detach() @ self.state_matrix > 0.5


def relax_trees(model: Fitted, encoder: Encoder, sample: pd.DataFrame) -> Surrogate:
    """Return the trees of a fitted model with soft splits, as a function of encoded rows.

    The model is a boosted estimator of scikit-learn, XGBoost, LightGBM or CatBoost, or a pipeline that ends
    in one. ``sample`` has rows in the dtypes that it takes, to compare predictions on. An
    :class:`UnsupportedModelError` says why the trees or the preprocessing cannot be read exactly.
    """
    encoded = encoder.encode(sample)
    forest, cells, input_format = _read_model(model, encoder, sample)
    scales = SplitScales.measure(forest, cells, encoder.layout, encoded.x[torch.from_numpy(encoded.usable)])
    surrogate = _from_trees(forest, cells, scales, encoder.layout)
    _check_predictions(surrogate, forest, scales, model, input_format, encoder, sample)
    return surrogate


def restore_relaxed_trees(
    model: Fitted, encoder: Encoder, sample: pd.DataFrame, learned: Mapping[str, Tensor]
) -> Surrogate:
    """Return the surrogate that :func:`relax_trees` made, from its ``learned``, without a comparison."""
    forest, cells, _ = _read_model(model, encoder, sample)
    scales = SplitScales(learned["scales"], learned["steps"], learned["origins"])
    return _from_trees(forest, cells, scales, encoder.layout)


def train_surrogate(x: Tensor, outputs: Tensor, layout: Layout, *, random_state: int = 0) -> Surrogate:
    """Train trees to imitate a model, and return them with soft splits.

    ``outputs`` are the model's probabilities for the encoded rows ``x``, shape ``(n, k)`` (one-hot if it only
    returns labels), or the values of a regressor, shape ``(n,)``.
    """
    if x.ndim != 2 or x.shape[1] != layout.width or outputs.ndim not in (1, 2) or len(outputs) != len(x):
        raise ShapeError(
            f"`x` must have shape (n, {layout.width}) and `outputs` (n, k) or (n,); "
            f"got {tuple(x.shape)} and {tuple(outputs.shape)}."
        )
    if outputs.ndim == 2:
        if not bool((outputs >= 0).all()):
            raise InvalidInputError("`outputs` must be probabilities; got negative values or NaN.")
        forest = imitate_classifier(x, outputs.double().log(), random_state=random_state)
    else:
        forest = imitate_regressor(x, outputs, random_state=random_state)
    return restore_trained_surrogate(forest, layout)


def restore_trained_surrogate(forest: Forest, layout: Layout) -> Surrogate:
    """Return trees that were trained on encoded rows, with soft splits."""
    if forest.n_features != layout.width:
        raise ShapeError(
            f"`forest` must split the {layout.width} columns of encoded rows; it splits {forest.n_features}."
        )
    steps = torch.zeros(layout.width, dtype=torch.float64)
    for block in layout.blocks:
        if block.scale is not None:
            steps[block.number] = block.scale.encoded_step
    return Surrogate(
        cells=nn.Identity(),
        forest=RelaxedForest(forest, torch.ones_like(steps), _TEMPERATURE, steps),
        description=f"a surrogate of {len(forest.root)} trees",
        n_outputs=len(forest.base),
        state_matrix=level_state_matrix(layout),
        learned=forest.state(),
    )


def _from_trees(forest: Forest, cells: Cells, scales: SplitScales, layout: Layout) -> Surrogate:
    relaxed = RelaxedForest(forest, scales.scales, _TEMPERATURE, scales.steps, scales.origins, per_split=True)
    step, origin = scales.steps[forest.feature], scales.origins[forest.feature]
    exact = replace(forest, threshold=off_values(forest, scales.scales, step, origin))
    return Surrogate(
        cells=cells,
        forest=relaxed,
        description=f"its own {len(forest.root)} trees with soft splits",
        n_outputs=len(forest.base),
        state_matrix=cells.state_matrix(layout.width),
        learned={"scales": scales.scales, "steps": scales.steps, "origins": scales.origins},
        own_trees=exact,
    )


def _read_model(model: Fitted, encoder: Encoder, sample: pd.DataFrame) -> tuple[Forest, Cells, InputFormat]:
    """Return the trees of a model, their inputs as a function of encoded rows, and the model's columns."""
    steps, estimator = _unwrap(model)
    forest = _read_trees(estimator)
    input_format, basis = _find_columns(model, encoder.schema.names), Basis(encoder.layout)
    dtype = input_format.select(sample).dtype if input_format.as_array else None
    columns = table_columns(encoder, sample, input_format.names, dtype, basis)
    for step in steps:
        columns = transform_columns(step, columns, basis)
    if forest.n_features != len(columns):
        raise UnsupportedModelError(
            f"{type(estimator).__name__} takes {forest.n_features} columns; its preprocessing returns "
            f"{len(columns)}"
        )
    return forest, Cells(columns, basis, set(forest.feature.tolist())), input_format


def _unwrap(model: Fitted) -> tuple[list[Fitted], Fitted]:
    """Return the preprocessing steps and the estimator at the end."""
    steps: list[Fitted] = []
    while type(model).__module__.partition(".")[0] == "sklearn":
        kind = sklearn_class_name(model)
        if kind == "Pipeline":
            steps += [step for _, step in model.steps[:-1]]
            model = model.steps[-1][1]
        elif kind == "FrozenEstimator":
            model = model.estimator
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif kind in ("FixedThresholdClassifier", "TunedThresholdClassifierCV"):
            model = model.estimator_
        else:
            break
    return steps, model


def _find_columns(model: Fitted, names: tuple[str, ...]) -> InputFormat:
    """Return the columns that a model takes; CatBoost and LightGBM have their own attributes for them."""
    found = getattr(model, "feature_names_in_", getattr(model, "feature_names_", None))
    spelt = {name.replace(" ", "_"): name for name in names} | {name: name for name in names}
    if found is not None and all(name in spelt for name in found):
        return InputFormat(tuple(spelt[name] for name in found), as_array=False)
    return InputFormat.from_model(model, names)


def _read_trees(estimator: Fitted, sets: LevelSets | None = None) -> Forest:
    """Read the trees of an estimator; categorical splits are refused unless their ``sets`` are collected."""
    library, kind = type(estimator).__module__.partition(".")[0], type(estimator).__name__
    reader = _READERS.get((library, kind.removesuffix("Classifier").removesuffix("Regressor")))
    if reader is None:
        raise UnsupportedModelError(
            f"trees are read from HistGradientBoosting, GradientBoosting, XGBoost, LightGBM and CatBoost; "
            f"{kind} is not one of them"
        )
    if sets is not None and reader in _WITH_SETS:
        return reader(estimator, sets)
    return reader(estimator)


def _check_predictions(
    surrogate: Surrogate,
    forest: Forest,
    scales: SplitScales,
    model: Fitted,
    input_format: InputFormat,
    encoder: Encoder,
    sample: pd.DataFrame,
) -> None:
    """Raise unless the trees predict as the model does, on rows of the table and on changed ones.

    The temperature is so low that splits are hard. Changed rows are left out where decoding may round a value
    across a threshold.
    """
    kind, classifies = type(model).__name__, surrogate.n_outputs > 1
    if classifies != hasattr(model, "predict_proba"):
        raise UnsupportedModelError(
            f"{kind} predicts through a link function, and has no class probabilities"
        )
    for changed, frame in enumerate((round_trip_rows(encoder, sample), perturbed_rows(encoder, sample))):
        encoded = encoder.encode(frame)
        kept = torch.from_numpy(encoded.usable)
        if changed:
            hard = None if surrogate.state_matrix is None else encoded.x @ surrogate.state_matrix > 0.5
            kept &= ~ambiguous_rows(forest, scales, surrogate.cells(encoded.x), hard)
        outputs = surrogate.at(_HARD_TEMPERATURE)(encoded.x[kept])
        outputs = outputs if classifies else outputs[:, 0]
        rows = input_format.select(frame[kept.numpy()])
        difference = prediction_difference(outputs, model, rows) if len(outputs) else 0.0
        if not difference <= (_SINGLE_PRECISION_TOLERANCE if forest.single_sums else TOLERANCE):
            raise UnsupportedModelError(
                f"the predictions of {kind} and of its trees differ by up to {difference:.1e}"
            )


_READERS: dict[tuple[str, str], Callable[[Fitted], Forest]] = {
    ("sklearn", "HistGradientBoosting"): read_hist_gradient_boosting,
    ("sklearn", "GradientBoosting"): read_gradient_boosting,
    ("xgboost", "XGB"): read_xgboost,
    ("xgboost", "XGBRF"): read_xgboost,
    ("lightgbm", "LGBM"): read_lightgbm,
    ("catboost", "CatBoost"): read_catboost,
}
_WITH_SETS = (read_hist_gradient_boosting, read_xgboost, read_lightgbm, read_catboost)
"""Readers that collect splits of categories by sets of levels."""
