"""What the engine answers on fixed rows, as a compact record: row numbers, changed values, costs, hashes.

The first record was made with commit fe6cd94, before the engines for tensors and for tables became one.
Special values, learned rules, sparser searches and another calibration changed answers of tables on purpose,
so it was recorded again after them. It holds no copy of the data: only what an answer changes.

    python tests/recorded/recording.py --out tests/recorded/answers.json     # record
    python tests/recorded/recording.py --compare tests/recorded/answers.json # table of differences
"""

from __future__ import annotations

import argparse
import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import plausiflow as pf

ROWS = 20
CONFIDENCE = 0.95
"""The default when the answers were recorded; what is kept here is the search, not a default."""


def loans() -> tuple[Any, Any]:
    return pf.load_table("loans").split(600, 200)


def rejected(explainer: pf.Explainer, rows: pd.DataFrame) -> pd.DataFrame:
    return rows[explainer.predict(rows).to_numpy() == "rejected"].iloc[:ROWS]


def loan_rules() -> list[Any]:
    return [
        pf.Immutable("age", "sex"),
        pf.Increasing("education"),
        pf.Linear("loan_amount <= 0.6 * income"),
    ]


def loans_linear() -> dict[str, Any]:
    train, test = loans()
    explainer = pf.Explainer(pf.LinearClassifier(), constraints=loan_rules(), confidence=CONFIDENCE).fit(
        train.x, train.y
    )
    rows = rejected(explainer, test.x)
    few = rows.iloc[:8]
    locked = [name for name in rows if name not in ("loan_amount", "savings")]
    impossible = [pf.Range("income", 0.0, 1.0), pf.Range("loan_amount", 0.0, 1.0)]
    return {
        "plain": recorded(explainer.explain(rows, "granted")),
        "k3": recorded(explainer.explain(few, "granted", k=3)),
        "max_changes": recorded(explainer.explain(few, "granted", constraints=[pf.MaxChanges(2)])),
        "locked": recorded(explainer.explain(few, "granted", locked=locked)),
        "relaxed": recorded(explainer.explain(few, "granted", locked=locked, relaxed=True)),
        "infeasible": recorded(explainer.explain(few, "granted", constraints=impossible)),
        "sure": recorded(explainer.explain(few, "granted", min_probability=0.8)),
        "one": recorded(explainer.explain(rows.iloc[[3]], "granted")),
    }


def loans_mlp() -> dict[str, Any]:
    train, test = loans()
    model = pf.MLPClassifier(hidden=(32, 32))
    explainer = pf.Explainer(model, constraints=loan_rules(), judges=1, confidence=CONFIDENCE).fit(
        train.x, train.y
    )
    return {"plain": recorded(explainer.explain(rejected(explainer, test.x), "granted"))}


def loans_boosted() -> dict[str, Any]:
    train, test = loans()
    names = [name for name in train.x if not pd.api.types.is_numeric_dtype(train.x[name])]
    model = make_pipeline(
        make_column_transformer((OrdinalEncoder(), names), remainder="passthrough"),
        HistGradientBoostingClassifier(random_state=0, max_iter=40),
    ).fit(train.x, train.y)
    explainer = pf.Explainer(model, constraints=loan_rules(), judges=1, confidence=CONFIDENCE).fit(
        train.x, train.y
    )
    rows = rejected(explainer, test.x)
    return {
        "plain": recorded(explainer.explain(rows, "granted")),
        "k3": recorded(explainer.explain(rows.iloc[:4], "granted", k=3)),
    }


def loans_callable() -> dict[str, Any]:
    train, test = loans()
    names = [name for name in train.x if not pd.api.types.is_numeric_dtype(train.x[name])]
    inner = make_pipeline(
        make_column_transformer((OneHotEncoder(), names), remainder=StandardScaler()),
        LogisticRegression(max_iter=1000),
    ).fit(train.x, train.y)

    def probabilities(frame: pd.DataFrame) -> np.ndarray:
        return inner.predict_proba(frame)

    explainer = pf.Explainer(probabilities, constraints=loan_rules(), judges=1, confidence=CONFIDENCE).fit(
        train.x, train.y
    )
    rows = rejected(explainer, test.x).iloc[:10]
    return {"plain": recorded(explainer.explain(rows, "granted"))}


def german_credit() -> dict[str, Any]:
    table = pf.load_table("german_credit")
    train, test = table.split(700, 60)
    names = [name for name in train.x if not pd.api.types.is_numeric_dtype(train.x[name])]
    model = make_pipeline(
        make_column_transformer((OneHotEncoder(handle_unknown="ignore"), names), remainder=StandardScaler()),
        LogisticRegression(max_iter=1000),
    ).fit(train.x, train.y)
    rules = [pf.Immutable(*table.immutable)]
    explainer = pf.Explainer(
        model, constraints=rules, orders=dict(table.orders), judges=1, confidence=CONFIDENCE
    )
    explainer.fit(train.x, train.y)
    return {"plain": recorded(explainer.explain(test.x.iloc[:ROWS]))}


def wine() -> dict[str, Any]:
    bunch = load_wine(as_frame=True)
    order = np.random.default_rng(0).permutation(len(bunch.data))
    x, y = bunch.data.iloc[order], bunch.target.iloc[order].map({0: "a", 1: "b", 2: "c"})
    explainer = pf.Explainer(pf.LinearClassifier(), judges=1, confidence=CONFIDENCE).fit(
        x.iloc[:140], y.iloc[:140]
    )
    rows = x.iloc[140:152]
    return {
        "runner_up": recorded(explainer.explain(rows, "runner_up")),
        "other": recorded(explainer.explain(rows.iloc[:6], "other")),
    }


def diabetes() -> dict[str, Any]:
    bunch = load_diabetes(as_frame=True, scaled=False)
    order = np.random.default_rng(0).permutation(len(bunch.data))
    x, y = bunch.data.iloc[order], bunch.target.iloc[order]
    model = RandomForestRegressor(n_estimators=40, min_samples_leaf=4, random_state=0)
    model.fit(x.iloc[:300], y.iloc[:300])
    rules = [pf.Immutable("age", "sex")]
    explainer = pf.Explainer(model, constraints=rules, judges=1, confidence=CONFIDENCE).fit(
        x.iloc[:300], y.iloc[:300]
    )
    rows = x.iloc[300:310]
    return {
        "interval": recorded(explainer.explain(rows, (100, 150))),
        "below": recorded(explainer.explain(rows.iloc[:4], (None, 120))),
    }


def published(name: str, kind: str) -> dict[str, Any]:
    from plausiflow_bench import PublishedMAF, PublishedRun

    reference = PublishedRun.load(name)
    model = reference.classifier(kind)
    density = PublishedMAF(reference.maf_arrays)
    plausibility = pf.Thresholded.at(density, float(reference.log_delta), model.n_classes)
    x = reference.x_test[:ROWS]
    paper = pf.PPCEF.paper(classifier=model, plausibility=plausibility)
    default = pf.PPCEF(classifier=model, plausibility=plausibility, lower=0.0, upper=1.0)
    default.fit(reference.x_train, reference.y_train)
    rules = pf.PPCEF(classifier=model, plausibility=plausibility, immutable=(0,), increasing=(1,))
    rules.fit(reference.x_train, reference.y_train)
    return {
        "paper": tensors(paper.explain(x, "paper")),
        "default": tensors(default.explain(x, "paper")),
        "rules": tensors(rules.explain(x, "paper")),
    }


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "ppcef_moons_lr": lambda: published("moons", "lr"),
    "ppcef_wine_mlp": lambda: published("wine", "mlp"),
    "ppcef_heloc_lr": lambda: published("heloc", "lr"),
    "loans_linear": loans_linear,
    "loans_mlp": loans_mlp,
    "loans_boosted": loans_boosted,
    "loans_callable": loans_callable,
    "german_credit": german_credit,
    "wine": wine,
    "diabetes": diabetes,
}


def cell(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, int | float | str | bool) else str(value)


def recorded(result: pf.Explanations) -> dict[str, Any]:
    """Verdicts, and of each answer its row, what it changes, its cost and how plausible it is."""
    answers = []
    for i, row in enumerate(np.asarray(result.of).tolist()):
        before, after = result.rows.iloc[row], result.answers.iloc[i]
        changed = {
            name: cell(after[name])
            for name in result.rows
            if not (before[name] == after[name] or (pd.isna(before[name]) and pd.isna(after[name])))
        }
        figures = result.figures.iloc[i]
        answers.append(
            {"row": row, "changed": changed, "cost": float(figures["cost"]), "score": float(figures["score"])}
        )
    return {"status": result.status["status"].tolist(), "answers": answers, "hash": hashed(answers)}


def tensors(found: pf.Counterfactuals) -> dict[str, Any]:
    cost = (found.x_cf.double() - found.x.double()).norm(dim=1)
    status = ["found" if ok else "infeasible" for ok in found.found.tolist()]
    answers = [
        {"row": i, "cost": float(cost[i]), "score": float(found.log_prob[i] - found.log_delta[i])}
        for i in found.found.nonzero()[:, 0].tolist()
    ]
    digest = hashlib.sha256(found.x_cf.contiguous().numpy().tobytes()).hexdigest()[:16]
    return {"status": status, "answers": answers, "hash": digest}


def hashed(answers: list[dict[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(answers, sort_keys=True).encode()).hexdigest()[:16]


def differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """How the answers of one request differ from those recorded."""
    best_old, best_new = ({}, {})
    for best, answers in ((best_old, old["answers"]), (best_new, new["answers"])):
        for answer in answers:
            if answer["row"] not in best or answer["cost"] < best[answer["row"]]["cost"]:
                best[answer["row"]] = answer
    both = sorted(set(best_old) & set(best_new))
    ratio = [best_new[r]["cost"] / max(1e-12, best_old[r]["cost"]) for r in both]
    return {
        "identical": old["hash"] == new["hash"],
        "same_status": sum(a == b for a, b in zip(old["status"], new["status"], strict=True)),
        "rows": len(old["status"]),
        "found_before": sum(s == "found" for s in old["status"]),
        "found": sum(s == "found" for s in new["status"]),
        "mean_cost_ratio": float(np.mean(ratio)) if ratio else float("nan"),
        "worst_cost_ratio": float(np.max(ratio)) if ratio else float("nan"),
        "least_score": min((a["score"] for a in new["answers"]), default=float("nan")),
        "least_score_before": min((a["score"] for a in old["answers"]), default=float("nan")),
    }


def record(names: list[str]) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    made = {}
    for name in names:
        made[name] = CASES[name]()
        print(name, {k: v["hash"] for k, v in made[name].items()}, flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--cases", default=",".join(CASES))
    given = parser.parse_args()
    made = record(given.cases.split(","))
    if given.out:
        given.out.write_text(json.dumps(made, indent=1) + "\n")
    if given.compare:
        stored = json.loads(given.compare.read_text())
        lines = [
            {"case": f"{name}/{part}"} | differences(stored[name][part], own)
            for name, parts in made.items()
            for part, own in parts.items()
        ]
        print(pd.DataFrame(lines).to_string())


if __name__ == "__main__":
    main()
