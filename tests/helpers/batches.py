"""Helpers of the tests of batch runs: applicants, a fitted explainer, and the output of a run."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from plausiflow import Explainer, LinearClassifier
from plausiflow.batch import BatchRequest

GRANTED = BatchRequest(target="granted")
FEATURES = ["id", "income", "debt", "job", "owner"]
JOBS = ("clerk", "nurse", "smith")


def applicants(n: int, seed: int = 0, *, few: bool = False) -> pd.DataFrame:
    """Return rows with an identifier, a number on a grid, a continuous number, a category and a boolean.

    Args:
        n: Number of rows.
        seed: Seed of the random numbers.
        few: Whether most rows are granted a loan already, so that few searches are needed.
    """
    rng = np.random.default_rng(seed)
    rich = rng.random(n) < (0.98 if few else 0.0)
    income = rng.integers(5, 60, n) * 100
    return pd.DataFrame(
        {
            "id": [f"{seed}-{i}" for i in range(n)],
            "income": np.where(rich, 5900, income),
            "debt": np.where(rich, -2.0, rng.normal(0.0, 1.0, n).clip(-3, 3)).round(3),
            "job": rng.choice(JOBS, n),
            "owner": rng.random(n) < 0.5,
            "branch": rng.integers(1, 9, n),
        }
    )


def decided(rows: pd.DataFrame) -> pd.Series:
    granted = rows["income"] / 3000 - rows["debt"] + rows["owner"] > 1
    return pd.Series(np.where(granted, "granted", "rejected"), index=rows.index, name="loan")


def fitted() -> Explainer:
    rows = applicants(150, seed=100)
    explainer = Explainer(
        LinearClassifier(), confidence=None, judges=0, max_extra_cost=0.0, kinds={"id": "identifier"}
    )
    return explainer.fit(rows[FEATURES], decided(rows))


def parts(out: Path) -> dict[str, bytes]:
    """Return the bytes of every part, by name."""
    return {path.name: path.read_bytes() for path in sorted(out.glob("part-*.parquet"))}


def answers(out: Path) -> pd.DataFrame:
    """Return all lines of a run, in the order of the input."""
    tables = [pq.read_table(path) for path in sorted(out.glob("part-*.parquet"))]
    frame = pd.concat([table.to_pandas() for table in tables], ignore_index=True)
    return frame.sort_values(["file", "row", "rank"], kind="stable", ignore_index=True)


def failures(out: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((out / "_failed").glob("*.json"))]
