"""Helpers of the tests of rules: a table with a column of every kind, rules for it, and one of its rows."""

import ast

import numpy as np
import pandas as pd

from plausiflow.constraints import CompiledRules, locked_mask
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema

JOBS, DEGREES = ["clerk", "nurse", "pilot"], ["HS", "BSc", "MSc"]


def people(n, seed, *, beyond=False):
    """Return random rows; ``beyond`` puts some numbers off the training grid or out of range."""
    rng = np.random.default_rng(seed)
    gain = np.where(rng.random(n) < 0.5, 0, rng.integers(1, 500, n))
    return pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(n)],
            "age": rng.integers(17, 80, n) + (rng.random(n) < 0.2) * (beyond * 70),
            "income": np.round(rng.lognormal(7, 1, n), 2),
            "rent": np.where(rng.random(n) < 0.15, np.nan, rng.random(n) * 500 * (1 + beyond)),
            "score": rng.normal(size=n).astype(np.float32),
            "tail": rng.lognormal(2, 2, n),
            "gain": gain + 0.5 * beyond * ((rng.random(n) < 0.2) & (gain > 0)),
            "job": pd.Series(rng.choice([*JOBS, None], n), dtype="str"),
            "degree": pd.Categorical(rng.choice(DEGREES, n), categories=DEGREES, ordered=True),
            "children": rng.integers(0, 4, n),
            "owns": rng.random(n) < 0.5,
            "year": 2024,
        }
    )


ENCODER = Encoder(Schema.infer(people(200, 0), kinds={"id": "identifier"}))
NAMES = ENCODER.schema.names


def rules_for(*constraints, encoder=ENCODER):
    return CompiledRules(constraints, encoder.schema, encoder.layout)


TRAINING = people(200, 0)
NUMBERS = ["age", "income", "rent", "score", "tail", "gain"]
# Relations, and by how much the equalities among them may be missed.
RELATIONS = {
    "rent <= 0.4 * income": 0,
    "age >= 20 + 2 * children": 0,
    "children + owns < 4": 0,
    "(year - 2000) / 2 + score >= tail - 60": 0,
    "gain + rent > 100": 0,
    "age == 30 + 10 * children": 0.5,
    "gain == 3.5 * age": 0.5,
}


def evaluate(text, row):
    """Return the value of an expression in Python."""
    return eval(compile(ast.parse(text, mode="eval"), "relation", "eval"), {}, row)


def row(**cells):
    """Return one row with some cells replaced."""
    base = {
        "id": "p", "age": 40, "income": 1000.0, "rent": 200.0, "score": np.float32(0.5), "tail": 5.0,
        "gain": 0.0, "job": "clerk", "degree": "BSc", "children": 1, "owns": False, "year": 2024,
    }  # fmt: skip
    frame = pd.DataFrame([base | cells])
    return frame.astype({"degree": pd.CategoricalDtype(DEGREES, ordered=True), "job": "str"})


def allowance_for(*constraints, locked=None, without=None, **cells):
    """Return what rules allow one row."""
    frame = row(**cells)
    mask = locked_mask(locked, NAMES, 1)
    return rules_for(*constraints).for_rows(ENCODER.encode(frame).x, frame, mask, without)
