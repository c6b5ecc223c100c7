"""``plausiflow benchmark durable``: how many answers survive when the model is trained again.

Every model is retrained on samples that neither guided nor checked any search, in three ways: on a bootstrap
of the training rows, on a bootstrap with other hyperparameters, and on 90 % of the rows. Four methods answer
the same rows: the default; ``durability``, with several draws of guides; a minimum probability that the
jurors of the first draw calibrate; and a check as in BetaRCE: the first answer on a ladder of minimum
probabilities that 30 more retrained models accept so often that, by a Beta distribution, the share of all
retrainings is as large as asked for with a confidence of 0.9. Methods and draws may run one by one, in
processes of their own; costs are relative to the default on the same rows.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import beta
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline

from plausiflow.datasets import Table, table_names
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow.models import draw_refits
from plausiflow.search import Durability
from plausiflow.tables import FloatArray, IntArray
from plausiflow_bench.harness.rows import Row, cpu_seconds, environment
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.speed.product import untrained_model
from plausiflow_bench.tables.cases import SCIKIT_LEARN, TableSelection, study_table, table_rules

DEFAULT_TABLES = ("loans", "german_credit", "heloc", "adult", "law")
MODELS = ("lr", "mlp", "boosted")
EARLY = "mlp_early"
"""A network that stops when it gets worse on a tenth of the rows: its retrainings differ in how long they
train, too."""
DEFAULT, DURABILITY, PROBABILITY, BETA = "default", "durability", "min_probability", "beta"
METHODS = (DURABILITY, PROBABILITY, BETA)
"""Methods that are compared with the default."""
TRAINING, ROWS = 700, 60
UNSEEN, OTHERS = 30, 10
"""Unseen bootstrap retrainings, and unseen ones of each other kind."""
LADDER = (0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Minimum probabilities that the check with a Beta distribution tries, the smallest first."""
PROBABILITIES = (0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99)
"""Minimum probabilities that jurors choose from."""
LEVEL, DRAWS, CHECKS = 0.9, 2, 30
"""The durability that is asked for, draws of guides, and models of the check with a Beta distribution."""
CONFIDENCE, BETA_CONFIDENCE = 0.95, 0.9
CALIBRATED_ROWS = 60
OTHER_SETTINGS: dict[str, dict[str, Any]] = {
    "lr": {"logisticregression__C": 0.2},
    "mlp": {"mlpclassifier__hidden_layer_sizes": (64,), "mlpclassifier__alpha": 1e-3},
    "mlp_early": {"mlpclassifier__hidden_layer_sizes": (32,), "mlpclassifier__alpha": 1e-2},
    "boosted": {
        "histgradientboostingclassifier__max_leaf_nodes": 15,
        "histgradientboostingclassifier__learning_rate": 0.06,
    },
}


@dataclass(frozen=True, kw_only=True)
class DurableSelection(TableSelection):
    """The tables and models of the study; ``train`` and ``rows`` have defaults of their own.

    Attributes:
        models: Any of ``lr``, ``mlp``, ``mlp_early``, ``boosted``.
        methods: Any of ``METHODS``.
        unseen: The number of unseen bootstrap retrainings.
        draws: How often guides and jurors are drawn.
        first_draw: The number of the first draw; a minimum probability is calibrated in draw 0.
        confidence: The share of answers that must last.
    """

    tables: tuple[str, ...] = DEFAULT_TABLES
    models: tuple[str, ...] = MODELS
    methods: tuple[str, ...] = METHODS
    unseen: int = UNSEEN
    draws: int = DRAWS
    first_draw: int = 0
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        super().__post_init__()
        known = {"models": (self.models, (*MODELS, EARLY)), "methods": (self.methods, METHODS)}
        for what, (names, some) in known.items():
            if unknown := [name for name in names if name not in some]:
                raise InvalidInputError(
                    f"Unknown {what}: {', '.join(unknown)}. Choose from {', '.join(some)}."
                )

    @staticmethod
    def known_tables() -> tuple[str, ...]:
        """Return the names of the tables that the study can use."""
        return (*table_names(), *SCIKIT_LEARN)


def run(selection: DurableSelection) -> Iterator[Row]:
    """Yield one row for each table, model and method."""
    for name in selection.tables:
        table = study_table(name)
        train, test = table.split(selection.train or TRAINING, selection.rows or ROWS)
        for kind in selection.models:
            yield from _Case(train, test, kind, selection).rows()


@dataclass(frozen=True, eq=False)
class _Case:
    """A table and a model."""

    train: Table
    test: Table
    kind: str
    selection: DurableSelection

    @property
    def named(self) -> Row:
        """What is measured."""
        return {
            "dataset": self.train.name,
            "model": self.kind,
            "training_rows": len(self.train.x),
            "rows": len(self.test.x),
            "seed": self.selection.seed,
            "confidence": self.selection.confidence,
        }

    def rows(self) -> Iterator[Row]:
        model = study_model(self.kind, self.selection.seed)
        with _quiet():
            model.fit(self.train.x, self.train.y)
        unseen, methods = self._unseen(model), self.selection.methods
        default, seconds = self._fitted(model, None)
        base = self._answered(DEFAULT, default, unseen, seconds)
        yield base.row
        if DURABILITY in methods or PROBABILITY in methods:
            yield from self._lasting(model, default, base, unseen)
        if BETA in methods:
            yield self._beta_check(model, default, base, unseen)

    def _lasting(
        self, model: object, default: Explainer, base: _Answered, unseen: dict[str, list[Any]]
    ) -> Iterator[Row]:
        first = self.selection.first_draw
        for draw in range(first, first + self.selection.draws):
            explainer, seconds = self._fitted(model, draw)
            own = self._answered(DURABILITY, explainer, unseen, seconds, base=base)
            yield own.row | {"draw": draw}
            if draw == 0 and PROBABILITY in self.selection.methods:
                least = self._calibrated(explainer)
                other = self._answered(
                    f"{PROBABILITY}={least:g}", default, unseen, seconds, base=base, least=least
                )
                yield other.row | {"durable_cost": own.cost_over(other)}

    def _fitted(self, model: object, draw: int | None) -> tuple[Explainer, float]:
        """Return a fitted explainer, with durability if a draw is given, and the seconds of its fit."""
        start, seed = cpu_seconds(), self.selection.seed
        explainer = Explainer(
            model,
            constraints=table_rules(self.train),
            orders=self.train.orders,
            confidence=self.selection.confidence,
            durability=None if draw is None else LEVEL,
            retrain=self._refits(model, 25, seed + 5000 * draw) if draw else None,
            random_state=seed,
        )
        with _quiet():
            explainer.fit(self.train.x, self.train.y, verbose=False)
        return explainer, cpu_seconds() - start

    def _refits(self, model: object, count: int, seed: int) -> list[Any]:
        none: Any = (None, None)
        with _quiet():
            return draw_refits(model, self.train.x, self.train.y, none, count=count, seed=seed)

    def _explain(
        self, explainer: Explainer, min_probability: float | None = None
    ) -> tuple[Explanations, float]:
        start = cpu_seconds()
        result = explainer.explain(self.test.x, "opposite", min_probability=min_probability, verbose=False)
        return result, 1000 * (cpu_seconds() - start) / len(self.test.x)

    def _calibrated(self, explainer: Explainer) -> float:
        """Return the smallest minimum probability whose answers the jurors accept as ``durability`` asks.

        A larger one is accepted more often, so the middle of those that are left is tried.
        """
        low, high = 0, len(PROBABILITIES) - 1
        while low < high:
            middle = (low + high) // 2
            accepted = self._accepted(explainer, PROBABILITIES[middle]) >= 1 - (1 - LEVEL) / 4
            low, high = (low, middle) if accepted else (middle + 1, high)
        return PROBABILITIES[low]

    def _accepted(self, explainer: Explainer, least: float) -> float:
        """Return the share of jurors that accept answers of training rows; 1 if there are none."""
        assert explainer.encoder_ is not None
        rows = self.train.x.iloc[:CALIBRATED_ROWS]
        result = replace_engine(explainer).explain(rows, "opposite", min_probability=least, verbose=False)
        if len(result.answers) == 0 or result.encoded is None:
            return 1.0
        x = explainer.encoder_.encode(result.answers).x
        targets = explainer.criterion_.of_class(result.encoded[2][result.of])
        return float(_durability(explainer).lasting(x, result.answers, targets).mean())

    def _unseen(self, model: Any) -> dict[str, list[Any]]:  # noqa: ANN401
        """Return retrained models that no search knows."""
        x, y, seed = self.train.x, self.train.y, 90_001 + self.selection.seed
        other = clone(model).set_params(**OTHER_SETTINGS[self.kind])
        generator = np.random.default_rng(seed)
        few = [generator.permutation(len(x))[: int(0.9 * len(x))] for _ in range(OTHERS)]
        with _quiet():
            fewer = [clone(model).fit(x.iloc[rows], pd.Series(y).iloc[rows]) for rows in few]
        return {
            "bootstrap": self._refits(model, self.selection.unseen, seed),
            "settings": self._refits(other, OTHERS, seed + 1),
            "fewer": fewer,
        }

    def _answered(
        self,
        method: str,
        explainer: Explainer,
        unseen: dict[str, list[Any]],
        fit_seconds: float,
        *,
        base: _Answered | None = None,
        least: float | None = None,
    ) -> _Answered:
        """Return how a method answers the test rows; ``base`` are the answers of the default."""
        result, spent = self._explain(explainer, least)
        best = result.best[result.is_found]
        row = self._measured(method, result, best, unseen)
        if method == DURABILITY:
            row |= self._as_asked(explainer, result, best, unseen)
        row |= {"fit_cpu_seconds": fit_seconds, "cpu_ms_per_row": spent, "cost": 1.0}
        own = result.figures["cost"].to_numpy()[best]
        answered = _Answered(row, dict(zip(result.of[best].tolist(), own.tolist(), strict=True)))
        if base is not None:
            row["cost"] = answered.cost_over(base)
            row["extra_ms"] = spent - float(base.row["cpu_ms_per_row"])
        return answered

    def _as_asked(
        self, explainer: Explainer, result: Explanations, best: IntArray, unseen: dict[str, list[Any]]
    ) -> Row:
        """Return the share of rows whose answers last as asked, as the explainer says, and how these do."""
        durability, encoder = _durability(explainer), explainer.encoder_
        assert encoder is not None
        assert result.encoded is not None
        answers = result.answers.iloc[best]
        targets = explainer.criterion_.of_class(result.encoded[2][result.of[best]])
        reserve = durability.reserve(explainer.model_, encoder.encode(answers).x, answers, targets)
        asked = best[(reserve >= 0).numpy()]
        wanted = result.verdicts["target"].to_numpy()[result.of[asked]]
        share = _survival(unseen["bootstrap"], result.answers.iloc[asked], wanted)
        return {
            "as_asked": len(asked) / max(1, len(self.test.x)),
            "asked_survive": _mean(share),
            "asked_rows_90": _mean(share >= LEVEL - 1e-9),
        }

    def _measured(
        self, method: str, result: Explanations, best: IntArray, unseen: dict[str, list[Any]]
    ) -> Row:
        """Return what answers, by position, cost and how many retrainings they survive."""
        answers, own = result.answers.iloc[best], result.figures.iloc[best]
        wanted = result.verdicts["target"].to_numpy()[result.of[best]]
        shares = {kind: _survival(models, answers, wanted) for kind, models in unseen.items()}
        row: Row = self.named | {
            "method": method,
            "draw": 0,
            "found": len(best) / max(1, len(self.test.x)),
            "survive": _mean(shares["bootstrap"]),
            "rows_90": _mean(shares["bootstrap"] >= LEVEL - 1e-9),
            "other_settings": _mean(shares["settings"]),
            "fewer_rows": _mean(shares["fewer"]),
            "changes": _mean(own["n_changes"].to_numpy()),
            "judged": _mean(own["judged"].to_numpy()),
        }
        if "lasting" in own:
            row["lasting"] = _mean(own["lasting"].to_numpy())
        return row | environment()

    def _beta_check(
        self, model: object, default: Explainer, base: _Answered, unseen: dict[str, list[Any]]
    ) -> Row:
        """Return the row of the check with a Beta distribution."""
        start = cpu_seconds()
        models = self._refits(model, CHECKS, 70_001 + self.selection.seed)
        chosen: dict[int, tuple[Explanations, int]] = {}
        costs: dict[int, float] = {}
        for least in (None, *LADDER):
            left = [row for row in range(len(self.test.x)) if row not in chosen]
            if not left:
                break
            rows = self.test.x.iloc[left]
            result = default.explain(rows, "opposite", min_probability=least, verbose=False)
            best = result.best[result.is_found]
            wanted = result.verdicts["target"].to_numpy()[result.of[best]]
            accepted = np.round(_survival(models, result.answers.iloc[best], wanted) * CHECKS)
            certain = beta.ppf(1 - BETA_CONFIDENCE, accepted + 1, CHECKS - accepted + 1) >= LEVEL
            chosen |= {left[result.of[a]]: (result, int(a)) for a in best[certain]}
            costs |= {left[result.of[a]]: float(result.figures["cost"].iloc[a]) for a in best[certain]}
        spent = 1000 * (cpu_seconds() - start) / len(self.test.x)
        parts: dict[int, tuple[Explanations, list[int]]] = {}
        for result, answer in chosen.values():
            parts.setdefault(id(result), (result, []))[1].append(answer)
        measured = [
            (len(some), self._measured("Beta check", result, np.array(some), unseen))
            for result, some in parts.values()
        ]
        row = _combined(measured, len(self.test.x), self) | {"cpu_ms_per_row": spent}
        return row | {"cost": _Answered(row, costs).cost_over(base)}


@dataclass(frozen=True)
class _Answered:
    """What was measured, and the cost of each answer, by the number of its row."""

    row: Row
    costs: dict[int, float]

    def cost_over(self, other: _Answered) -> float:
        """Return the cost relative to other answers, over the rows that both answer."""
        both = [row for row in self.costs if row in other.costs]
        if not both:
            return float("nan")
        return sum(self.costs[row] for row in both) / sum(other.costs[row] for row in both)


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore that a network stops after its epochs, and what an explainer warns of."""
    with ignore_plausibility_warnings(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def study_model(kind: str, seed: int) -> Pipeline:
    """Return an untrained model of the study; networks train for 200 epochs, but for ``mlp_early``."""
    if kind == EARLY:
        return untrained_model("mlp", seed)
    pipeline = untrained_model(kind, seed)
    if kind == "mlp":
        pipeline.set_params(mlpclassifier=MLPClassifier((32,), alpha=1e-2, max_iter=200, random_state=seed))
    return pipeline


def _combined(parts: list[tuple[int, Row]], count: int, case: _Case) -> Row:
    """Return rows of measurements as one, weighted by their numbers of answers."""
    if not parts:
        none: Row = case.named | {"method": "Beta check", "draw": 0}
        return none | {"found": 0.0} | environment()
    total, row = sum(n for n, _ in parts), dict(parts[0][1])
    for name in ("survive", "rows_90", "other_settings", "fewer_rows", "changes", "judged"):
        row[name] = sum(n * float(part[name]) for n, part in parts) / total
    return row | {"found": total / count}


def _mean(values: npt.NDArray[Any]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _durability(explainer: Explainer) -> Durability:
    assert explainer.engine_ is not None
    assert explainer.engine_.durability is not None
    return explainer.engine_.durability


def replace_engine(explainer: Explainer) -> Explainer:
    """Return a copy of an explainer that does not ask for durability."""
    plain = copy.copy(explainer)
    assert plain.engine_ is not None
    plain.engine_ = replace(plain.engine_, durability=None)
    return plain


def _survival(models: list[Any], answers: pd.DataFrame, wanted: npt.NDArray[np.object_]) -> FloatArray:
    """Return the share of models that decide each answer as wanted."""
    if len(answers) == 0:
        return np.empty(0)
    votes = [np.ravel(model.predict(answers)) == wanted for model in models]
    return np.asarray(np.mean(votes, axis=0), dtype=np.float64)
