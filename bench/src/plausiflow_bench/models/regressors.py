"""The part of ``plausiflow benchmark models`` on numeric outcomes: diabetes, a random forest.

The target of patients whose predicted progression is outside of an interval is that interval. ``validity`` is
the share of counterfactuals that the forest itself, in the table's dtypes, predicts inside.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from plausiflow.constraints import Immutable
from plausiflow.explainer import Explainer
from plausiflow_bench.harness.rows import CpuTimer, Row, environment

INTERVALS = ((130.0, 170.0), (None, 120.0))
TEST_ROWS = 100


def run(seed: int = 0, rows: int = TEST_ROWS) -> Iterator[Row]:
    """Yield one row per interval."""
    data = load_diabetes(as_frame=True, scaled=False)
    x, y = data.data, data.target.rename("progression")
    order = np.random.default_rng(seed).permutation(len(x))
    test, train = order[:rows], order[TEST_ROWS:]
    model = RandomForestRegressor(200, random_state=seed, n_jobs=1).fit(x.iloc[train], y.iloc[train])
    explainer = Explainer(model, constraints=[Immutable("age", "sex")], random_state=seed)
    with CpuTimer() as fitting:
        explainer.fit(x.iloc[train], y.iloc[train])
    for low, high in INTERVALS:
        with CpuTimer() as searching:
            result = explainer.explain(x.iloc[test], (low, high))
        found, needed = result.is_found, int(result.is_needed.sum())
        figures = result.figures.iloc[result.best[found]]
        predicted = model.predict(result.answers.iloc[result.best[found]])
        inside = (predicted >= (low or -np.inf)) & (predicted <= high)
        immutable = result.answers.iloc[result.best[found]][["age", "sex"]].to_numpy()
        broken = (immutable != result.rows[found][["age", "sex"]].to_numpy()).any(axis=1)
        row: Row = {
            "part": "regression",
            "dataset": "diabetes",
            "model": f"rf, {'below' if low is None else f'{low:g} to'} {high:g}",
            "model_type": "surrogate",
            "rows": len(test),
            "found": float(found.sum() / max(1, needed)),
            "validity": float(inside.mean()),
            "plausible": float((figures["score"] >= 0).mean()),
            "rules_broken": float(broken.mean()),
            "steady": float((figures["steady"] == 1).mean()),
            "judged": float(figures["judged"].mean()),
            "l2": float(figures["l2"].mean()),
            "changes": float(figures["n_changes"].mean()),
            "model_calls": result.model_calls,
            "model_rows": result.model_rows / max(1, needed),
            "cpu_ms": 1e3 * searching.seconds / max(1, needed),
            "fit_cpu_seconds": fitting.seconds,
            "training_rows": len(train),
            "seed": seed,
        }
        yield row | environment()
