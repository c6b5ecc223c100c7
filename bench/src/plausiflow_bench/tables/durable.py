"""``plausiflow benchmark durable``: how many answers survive when the model is trained again.

Every model is retrained on samples that neither guided nor checked any search, in three ways: on a bootstrap
of the training rows, on a bootstrap with other hyperparameters, and on 90 % of the rows. Four methods answer
the same rows: the default; ``durability``, with several draws of guides; a minimum probability that the
jurors of the first draw calibrate; and a check as in BetaRCE: the first answer on a ladder of minimum
probabilities that 30 more retrained models accept so often that, by a Beta distribution, the share of all
retrainings is as large as asked for with a confidence of 0.9.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import beta
from sklearn.base import clone

from plausiflow.datasets import Table, table_names
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow.models import draw_refits
from plausiflow.plots import ACCENT, QUIET, WARM, new_figure
from plausiflow.search import Durability
from plausiflow.tables import FloatArray, IntArray
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row, cpu_seconds, environment
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.speed.product import untrained_model
from plausiflow_bench.tables.cases import SCIKIT_LEARN, TableSelection, study_table, table_rules

DEFAULT_TABLES = ("loans", "german_credit", "heloc", "adult", "law")
MODELS = ("lr", "mlp", "boosted")
TRAINING, ROWS = 700, 60
UNSEEN, OTHERS = 30, 10
"""Unseen bootstrap retrainings, and unseen ones of each other kind."""
LADDER = (0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Minimum probabilities that are tried, the smallest first."""
LEVEL, DRAWS, CHECKS = 0.9, 2, 30
"""The durability that is asked for, draws of guides, and models of the check with a Beta distribution."""
CONFIDENCE, BETA_CONFIDENCE = 0.95, 0.9
CALIBRATED_ROWS = 60
COLUMNS = (
    "dataset", "model", "confidence", "method", "draw", "found", "survive", "rows_90", "as_asked",
    "asked_survive", "asked_rows_90", "other_settings", "fewer_rows", "cost", "changes", "judged", "lasting",
    "fit_cpu_seconds", "cpu_ms_per_row",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark durable --page` -->"
OTHER_SETTINGS: dict[str, dict[str, Any]] = {
    "lr": {"logisticregression__C": 0.2},
    "mlp": {"mlpclassifier__hidden_layer_sizes": (32,), "mlpclassifier__alpha": 1e-2},
    "boosted": {
        "histgradientboostingclassifier__max_leaf_nodes": 15,
        "histgradientboostingclassifier__learning_rate": 0.06,
    },
}


@dataclass(frozen=True, kw_only=True)
class DurableSelection(TableSelection):
    """The tables and models of the study; ``train`` and ``rows`` have defaults of their own.

    Attributes:
        models: Any of ``lr``, ``mlp``, ``boosted``.
        unseen: The number of unseen bootstrap retrainings.
        draws: How often guides and jurors are drawn.
        confidence: The share of answers that must last.
    """

    tables: tuple[str, ...] = DEFAULT_TABLES
    models: tuple[str, ...] = MODELS
    unseen: int = UNSEEN
    draws: int = DRAWS
    confidence: float = CONFIDENCE

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
        model = untrained_model(self.kind, self.selection.seed).fit(self.train.x, self.train.y)
        unseen = self._unseen(model)
        default, seconds = self._fitted(model, None)
        row = self._row("default", default, unseen, seconds)
        base = float(row["cost"])
        yield row | {"cost": 1.0}
        first = None
        for draw in range(self.selection.draws):
            explainer, seconds = self._fitted(model, draw)
            first = first or explainer
            row = self._row("durability", explainer, unseen, seconds) | {"draw": draw}
            yield row | {"cost": float(row["cost"]) / base}
        if first is not None:
            least = self._calibrated(first)
            row = self._row(f"min_probability={least:g}", default, unseen, seconds, least)
            yield row | {"cost": float(row["cost"]) / base}
        row = self._beta_check(model, default, unseen)
        yield row | {"cost": float(row["cost"]) / base}

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
        with ignore_plausibility_warnings():
            explainer.fit(self.train.x, self.train.y, verbose=False)
        return explainer, cpu_seconds() - start

    def _refits(self, model: object, count: int, seed: int) -> list[Any]:
        none: Any = (None, None)
        return draw_refits(model, self.train.x, self.train.y, none, count=count, seed=seed)

    def _explain(
        self, explainer: Explainer, min_probability: float | None = None
    ) -> tuple[Explanations, float]:
        start = cpu_seconds()
        result = explainer.explain(self.test.x, "opposite", min_probability=min_probability, verbose=False)
        return result, 1000 * (cpu_seconds() - start) / len(self.test.x)

    def _calibrated(self, explainer: Explainer) -> float:
        """Return the smallest minimum probability whose answers the jurors accept as ``durability`` asks."""
        durability = _durability(explainer)
        assert explainer.encoder_ is not None
        plain, rows = replace_engine(explainer), self.train.x.iloc[:CALIBRATED_ROWS]
        for least in LADDER:
            result = plain.explain(rows, "opposite", min_probability=least, verbose=False)
            if len(result.answers) == 0 or result.encoded is None:
                continue
            x = explainer.encoder_.encode(result.answers).x
            targets = explainer.criterion_.of_class(result.encoded[2][result.of])
            if float(durability.lasting(x, result.answers, targets).mean()) >= 1 - (1 - durability.level) / 4:
                return least
        return LADDER[-1]

    def _unseen(self, model: Any) -> dict[str, list[Any]]:  # noqa: ANN401
        """Return retrained models that no search knows."""
        x, y, seed = self.train.x, self.train.y, 90_001 + self.selection.seed
        other = clone(model).set_params(**OTHER_SETTINGS[self.kind])
        generator = np.random.default_rng(seed)
        few = [generator.permutation(len(x))[: int(0.9 * len(x))] for _ in range(OTHERS)]
        return {
            "bootstrap": self._refits(model, self.selection.unseen, seed),
            "settings": self._refits(other, OTHERS, seed + 1),
            "fewer": [clone(model).fit(x.iloc[rows], pd.Series(y).iloc[rows]) for rows in few],
        }

    def _row(
        self,
        method: str,
        explainer: Explainer,
        unseen: dict[str, list[Any]],
        fit_seconds: float,
        min_probability: float | None = None,
    ) -> Row:
        result, spent = self._explain(explainer, min_probability)
        best = result.best[result.is_found]
        row = self._measured(method, result, best, unseen)
        if min_probability is None and method == "durability":
            row |= self._as_asked(explainer, result, best, unseen)
        return row | {"fit_cpu_seconds": fit_seconds, "cpu_ms_per_row": spent}

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
            "cost": _mean(own["cost"].to_numpy()),
            "changes": _mean(own["n_changes"].to_numpy()),
            "judged": _mean(own["judged"].to_numpy()),
        }
        if "lasting" in own:
            row["lasting"] = _mean(own["lasting"].to_numpy())
        return row | environment()

    def _beta_check(self, model: object, default: Explainer, unseen: dict[str, list[Any]]) -> Row:
        """Return the row of the check with a Beta distribution; its cost is that of the rows it answers."""
        start = cpu_seconds()
        models = self._refits(model, CHECKS, 70_001 + self.selection.seed)
        chosen: dict[int, tuple[Explanations, int]] = {}
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
        spent = 1000 * (cpu_seconds() - start) / len(self.test.x)
        parts: dict[int, tuple[Explanations, list[int]]] = {}
        for result, answer in chosen.values():
            parts.setdefault(id(result), (result, []))[1].append(answer)
        measured = [
            (len(some), self._measured("Beta check", result, np.array(some), unseen))
            for result, some in parts.values()
        ]
        return _combined(measured, len(self.test.x), self) | {"cpu_ms_per_row": spent}


def _combined(parts: list[tuple[int, Row]], count: int, case: _Case) -> Row:
    """Return rows of measurements as one, weighted by their numbers of answers."""
    if not parts:
        none: Row = case.named | {"method": "Beta check", "draw": 0}
        return none | {"found": 0.0, "cost": float("nan")} | environment()
    total, row = sum(n for n, _ in parts), dict(parts[0][1])
    for name in ("survive", "rows_90", "other_settings", "fewer_rows", "cost", "changes", "judged"):
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


def draw_figure(rows: list[Row], path: Path) -> None:
    """Draw the share that survives against the cost, a panel for each model."""
    kinds = [kind for kind in MODELS if any(row["model"] == kind for row in rows)]
    figure = new_figure(4.4 * len(kinds), 3.8)
    panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True).ravel()
    for axes, kind in zip(panels, kinds, strict=True):
        for method, colour in _COLOURS.items():
            own = [r for r in rows if r["model"] == kind and str(r["method"]).startswith(method)]
            own = [r for r in own if np.isfinite(float(r["cost"])) and "survive" in r]
            size = [90 * float(r["found"]) + 6 for r in own]
            points = [float(r["cost"]) for r in own], [float(r["survive"]) for r in own]
            axes.scatter(*points, s=size, color=colour, alpha=0.8, label=method.replace("_", " "))
        axes.axhline(LEVEL, color=QUIET, linewidth=0.8, linestyle="dotted")
        axes.set(title=_TITLES[kind], xlabel="cost, in multiples of the default")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share of unseen retrainings that still decide so")
    panels[0].legend(frameon=False, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


_COLOURS = {"default": QUIET, "min_probability": WARM, "Beta check": "#16a34a", "durability": ACCENT}
_TITLES = {"lr": "logistic regression", "mlp": "neural network", "boosted": "boosted trees"}


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into a page, between its marks."""
    shown: list[Row] = [
        {name: f"{value:.2f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    ]
    text = f"{markdown(shown, COLUMNS)}\n\n{describe_runs(rows)}"
    write_section(path, MARK, text)
