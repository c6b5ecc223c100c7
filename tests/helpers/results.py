"""Shared by the tests of results: results built from parts, three applicants, features, strict JSON."""

import json

import numpy as np
import pandas as pd

from plausiflow.explanations import Explanations
from plausiflow.tables.features import Feature
from plausiflow.tables.schema import Schema

FIGURES = ["cost", "l1", "l2", "n_changes", "probability", "log_density", "score", "judged"]


def build(rows, answers, of, **parts) -> Explanations:
    """Return a result whose figures differ between answers; rows without an answer are infeasible."""
    of = np.array(of, dtype=np.int64)
    status = np.where(np.isin(np.arange(len(rows)), of), "found", "infeasible").astype(object)
    figures = pd.DataFrame({name: np.arange(len(of)) + 10.0 * j for j, name in enumerate(FIGURES)})
    verdicts = pd.DataFrame(
        {
            "status": parts.pop("status", status),
            "reason": parts.pop("reason", ""),
            "predicted": 0,
            "target": parts.pop("target", 1),
            "probability": 0.25,
        },
        index=rows.index,
    )
    given = {"figures": figures, "verdicts": verdicts, "schema": schema_of(rows), "labels": (0, 1)} | parts
    return Explanations(rows=rows, answers=answers, of=of, **given)


def schema_of(rows) -> Schema:
    return Schema(
        tuple(Feature(name=name, kind="category", dtype=dtype) for name, dtype in rows.dtypes.items())
    )


def loans():
    """Three applicants; the first has two answers, the second none, the third one."""
    rows = pd.DataFrame(
        {
            "income": [31000, 42000, 18000],
            "open_lines": [4, 2, 9],
            "owns_home": [False, True, False],
            "job": ["clerk", "nurse", None],
            "rate": [0.25, 0.5, 0.125],
        },
        index=["Ann", "Bob", "Cid"],
    )
    answers = rows.iloc[[0, 0, 2]].reset_index(drop=True)
    answers["income"] = [38500, 31000, 18000]
    answers["open_lines"] = [3, 4, 9]
    answers["owns_home"] = [False, True, False]
    answers["job"] = ["clerk", "nurse", None]
    answers["rate"] = [0.25, 0.25, 0.1]
    features = (
        Feature(name="income", kind="integer", dtype=np.dtype(int), maximum=1e5, step=100.0),
        Feature(name="open_lines", kind="ordered", dtype=np.dtype(int), levels=tuple(range(10))),
        Feature(name="owns_home", kind="boolean", dtype=np.dtype(bool), levels=(False, True)),
        Feature(name="job", kind="category", dtype=rows["job"].dtype, levels=("clerk", "nurse")),
        Feature(name="rate", kind="continuous", dtype=np.dtype(float), maximum=1.0),
    )
    return {"rows": rows, "answers": answers, "of": [0, 0, 2], "schema": Schema(features)}


def number(**known):
    return Feature(**({"name": "net_income", "kind": "integer", "dtype": np.dtype(float)} | known))


def levels(kind, *values):
    return Feature(name="open_lines", kind=kind, dtype=np.dtype(object), levels=values)


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)
