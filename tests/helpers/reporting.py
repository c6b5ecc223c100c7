"""Shared by the tests of the report: a page parser, and results of every kind."""

import json
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from plausiflow.explanations import Explanations
from plausiflow.report import labels
from plausiflow.tables.features import Feature
from plausiflow.tables.schema import Schema

FIGURES = ["cost", "l1", "l2", "n_changes", "probability", "log_density", "score", "judged"]
VOID = {"meta", "link", "input", "br"}
PERCENTILES = np.vstack([norm.ppf(np.linspace(0.001, 0.999, 101), loc, 2.0) for loc in (0.0, 1.0)])


class Page(HTMLParser):
    """Parses a page; fails if elements are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.raw, self.open, self.elements, self.inside = text, [], [], {}
        self.feed(text)
        self.close()
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} repeats an attribute"
        number = len(self.elements)
        self.elements.append((tag, dict(attrs)))
        self.inside[number] = ""
        if tag not in VOID:
            self.open.append((tag, number))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop()[0] == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        for _, number in self.open:
            self.inside[number] += data

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    def all(self, tag):
        """Return the attributes and the text of each element with this tag."""
        pairs = enumerate(self.elements)
        return [(attributes, self.inside[number]) for number, (name, attributes) in pairs if name == tag]

    def tables(self):
        """Return the cells of each table, by its caption."""
        found = {}
        for number, (name, _) in enumerate(self.elements):
            if name == "caption":
                lines = found[self.inside[number]] = []
            elif name == "tr":
                lines.append([])
            elif name in ("td", "th"):
                lines[-1].append(self.inside[number])
        return found

    @property
    def data(self):
        ((_, text),) = [pair for pair in self.all("script") if pair[0].get("id") == "data"]
        return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def build(rows, answers, of, **parts):
    """Return a result whose figures differ between answers; rows without an answer are infeasible."""
    of = np.array(of, dtype=np.int64)
    n = len(rows)
    status = np.where(np.isin(np.arange(n), of), "found", "infeasible").astype(object)
    figures = pd.DataFrame({name: np.arange(len(of)) / 7 + j for j, name in enumerate(FIGURES)})
    verdicts = pd.DataFrame(
        {
            "status": parts.pop("status", status),
            "reason": parts.pop("reason", ""),
            "predicted": parts.pop("predicted", "no"),
            "target": parts.pop("target", "yes"),
            "probability": parts.pop("probability", 0.25),
        },
        index=rows.index,
    )
    features = tuple(Feature(name=name, kind="category", dtype=dtype) for name, dtype in rows.dtypes.items())
    given = {"figures": figures, "verdicts": verdicts, "schema": Schema(features), "labels": ("no", "yes")}
    return Explanations(rows=rows, answers=answers, of=of, **given | parts)


def page_of(result, folder, **options) -> Page:
    path = folder / "report.html"
    result.to_html(path, **options)
    return Page(path.read_text(encoding="utf-8"))


def numbers(values, of=(), **parts):
    rows = pd.DataFrame({"a": values, "b": np.arange(len(values))})
    answers = rows.iloc[list(of)].reset_index(drop=True)
    return build(rows, answers.assign(b=answers["b"] + 1), of, **parts)


def relabelled(result, index):
    parts = {name: getattr(result, name) for name in ("answers", "of", "figures", "schema", "labels")}
    return Explanations(rows=result.rows.set_axis(index), verdicts=result.verdicts.set_axis(index), **parts)


def intervals():
    result = numbers([1.5, 2.5, np.nan], [0, 1], labels=(), predicted=[1.25, 3.0, np.nan])
    verdicts = result.verdicts.assign(target=["5 to 6.5", "at least 2", None], probability=np.nan)
    figures = result.figures.assign(probability=np.nan, prediction=[5.5, 2.25])
    parts = {name: getattr(result, name) for name in ("rows", "answers", "of", "schema")}
    encoded = (torch.zeros(3, 1), torch.zeros(2, 1), torch.tensor([0, 1, 0]))
    return Explanations(
        verdicts=verdicts, figures=figures, encoded=encoded, held_out=PERCENTILES, outcome="limit", **parts
    )


RESULTS = {
    "no rows": lambda: numbers([]),
    "one row": lambda: numbers([1.0], [0]),
    "all infeasible": lambda: numbers([1.0, 2.0], reason="no way"),
    "all already": lambda: numbers([1.0, 2.0], status="already"),
    "missing values": lambda: numbers([np.nan, None, 1.0], [0, 2], probability=np.nan),
    "nothing predicted": lambda: numbers([1.0, 2.0], status="invalid_input", predicted=None, target=None),
    "intervals": intervals,
    "bool labels": lambda: numbers([1.0], [0], labels=(False, True), predicted=False, target=True),
    "int labels": lambda: numbers([1.0], [0], labels=(0, 1), predicted=0, target=np.int64(1)),
    "float labels": lambda: numbers([1.0], [0], labels=(0.0, 1.0), predicted=0.0, target=1.0),
    "equal labels": lambda: relabelled(numbers([1.0, 2.0], [0, 1]), ["x", "x"]),
    "two levels": lambda: relabelled(
        numbers([1.0, 2.0], [0, 1]), pd.MultiIndex.from_tuples([("x", 1), ("x", 1)], names=["a", None])
    ),
    "times": lambda: relabelled(numbers([1.0], [0]), pd.DatetimeIndex(["2024-02-29"])),
    "dates as values": lambda: numbers(pd.to_datetime(["2024-02-29", None]), [0]),
    "unknown figures": lambda: numbers(
        [1.0, 2.0], [0, 1], figures=pd.DataFrame({**dict.fromkeys(FIGURES, np.nan), "cost": [0.0, np.inf]})
    ),
    "every status": lambda: numbers(
        np.arange(6.0), [0, 2], status=[*labels.VERDICTS], reason=["", *("why" for _ in range(5))]
    ),
}
