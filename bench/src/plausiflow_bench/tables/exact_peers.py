"""``plausiflow benchmark exact --python``: DiCE and NICE against the proven optimum, on the same rows.

The other libraries evaluate a network in their own process (:mod:`plausiflow_bench.tables.peers`). So the
model is a small network, of which the optimum can be proven. It counts as the optimum of all rows that the
model decides as wanted, by any margin, under the table's rules. Answers of a library that break a rule or are
not decided as wanted do not count. ``below`` counts answers that cost less than the proven bound: any such
answer would show that a proof is wrong.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from plausiflow.core import Targets
from plausiflow.exact import Proof, Prover, model_space
from plausiflow.explainer import Explainer
from plausiflow.models import MLPClassifier
from plausiflow.search import RowCertifier, RowTask
from plausiflow_bench.harness.rows import Row
from plausiflow_bench.tables import peers
from plausiflow_bench.tables.cases import Case, TableSelection, first_rows, study_table, table_rules

Array = npt.NDArray[np.float64]
HIDDEN = (8,)
"""Hidden units of the network: few enough for proofs within seconds."""


def run(selection: TableSelection, seconds: float, settings: peers.PeerSettings) -> Iterator[Row]:
    """Yield one row for each table and method, ours first."""
    versions = settings.versions()
    for name in selection.tables:
        case = small_case(selection, name)
        proofs = prove(case, seconds)
        with tempfile.TemporaryDirectory() as folder:
            peers.write_task(case, Path(folder), settings.seconds_per_row, selection.seed)
            result = case.explainer.explain(case.test.x)
            yield _figures(case, selection.seed, "plausiflow", proofs, result.answers, result.of)
            for method in settings.methods:
                answers, of = peers.read_answers(case, settings.answers(Path(folder), method))
                row = _figures(case, selection.seed, method, proofs, answers, of)
                yield row | {"version": versions[method]}


def small_case(selection: TableSelection, name: str) -> Case:
    """Return a table with a small network and an explainer without a density."""
    train, test = study_table(name).study_split()
    train = first_rows(train, selection.train)
    explainer = Explainer(
        MLPClassifier(hidden=HIDDEN, random_state=selection.seed),
        constraints=table_rules(train),
        orders=train.orders,
        plausibility=0.0,
        confidence=None,
        judges=0,
        random_state=selection.seed,
    )
    return Case.fit(explainer, train, first_rows(test, selection.rows))


def prove(case: Case, seconds: float) -> list[Proof]:
    """Return what is proven about each test row, for any margin."""
    engine = case.engine
    space = model_space(engine.model, engine.rules.layout)
    prover = Prover(space, engine.cost_model, engine.validity.criterion).without_margin()
    certifier = RowCertifier(case.model, case.encoder, engine.rules, prover, seconds)
    proofs = []
    for i in range(len(case.test.x)):
        row, target = case.test.x.iloc[[i]].reset_index(drop=True), Targets(case.y_target[i : i + 1])
        task = RowTask(row, case.x[i : i + 1], target, None, float("inf"))
        proofs.append(certifier.prove(task, prover, seconds))
    return proofs


def _figures(
    case: Case,
    seed: int,
    method: str,
    proofs: list[Proof],
    answers: pd.DataFrame,
    of: npt.NDArray[np.int64],
) -> Row:
    """Compare the costs of answers with what is proven."""
    index = torch.from_numpy(np.asarray(of))
    again = case.encoder.encode(answers)
    kept = ~case.engine.rules.violations(case.test.x.iloc[of], answers).to_numpy().any(axis=1)
    fine = kept & again.usable & (case.predict(again.x) == case.y_target[index]).numpy()
    layout, before = case.encoder.layout, case.x[index]
    spent = case.engine.cost_model((before, layout.codes(before)), (again.x, layout.codes(again.x)))
    cost, bound = spent.numpy()[fine], np.array([proofs[i].bound for i in of])[fine]
    optimum = np.array([proofs[i].cost if proofs[i].optimal else np.nan for i in of])[fine]
    known = np.isfinite(optimum)
    ratio = cost[known] / optimum[known]
    row: Row = {"method": method, "model": f"network of {'x'.join(map(str, HIDDEN))}", "setting": method}
    row |= {
        "proven": float(np.mean([proof.optimal or proof.infeasible for proof in proofs])),
        "found": float(fine.sum() / len(case.test.x)),
        "cost": _mean(cost[known]),
        "optimum": _mean(optimum[known]),
        "ratio_median": float(np.median(ratio)) if len(ratio) else float("nan"),
        "within_1": _mean((ratio <= 1.01).astype(np.float64)),
        "below": int((cost < bound - 1e-9).sum()),
    }
    return case.with_provenance(row, seed)


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else float("nan")
