"""The report: a well-formed page that needs nothing else, numbers as in pandas, and no text that can act."""

import json
import re
import shutil
import subprocess
import warnings
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from plausiflow import Decreasing, Explainer, Immutable, LinearClassifier
from plausiflow.classifiers.tabular import EncodedModel
from plausiflow.data.encoding import Encoder
from plausiflow.data.features import Feature
from plausiflow.data.schema import Schema
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble, levels, mixed
from plausiflow.densities.ensemble import split_by_class
from plausiflow.densities.thresholds import spread_of
from plausiflow.explanations import Explanations, checks
from plausiflow.report import charts, words
from plausiflow.report.markup import json_for_script, shown, table
from plausiflow.report.page import asset
from plausiflow.search import fitting
from plausiflow.search.calibration import PlausibilityWarning
from plausiflow.training import Training

FIGURES = ["cost", "l1", "l2", "n_changes", "probability", "log_density", "score", "judged"]
VOID = {"meta", "link", "input", "br"}
PERCENTILES = np.vstack([norm.ppf(np.linspace(0.001, 0.999, 101), loc, 2.0) for loc in (0.0, 1.0)])
EVIL = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '" onload="alert(1)',
    "' autofocus onfocus='alert(1)",
    "&lt;b&gt; &amp; <b>",
    "]]>\u2028\u2029",
    "</noscript><img src=x onerror=alert(1)>",
    "</style>${alert(1)}`",
]


class Page(HTMLParser):
    """What a page holds; fails where elements are not closed in order."""

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
        """Attributes and text of each such element."""
        pairs = enumerate(self.elements)
        return [(attributes, self.inside[number]) for number, (name, attributes) in pairs if name == tag]

    def tables(self):
        """The cells of each table, by its caption."""
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
    """A result whose figures differ from answer to answer; rows without an answer are infeasible."""
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


@pytest.fixture(scope="module")
def many():
    """90 rows with up to three answers each, or a nearest miss, or neither; numbers, levels and an order."""
    draw, n = np.random.default_rng(0), 90
    rows = pd.DataFrame(
        {
            "net_income": draw.integers(100, 900, n) * 100,
            "rate": draw.random(n),
            "job": draw.choice(["clerk", "nurse", "none"], n),
            "size": draw.choice(["S", "M", "L"], n),
            "owner": draw.random(n) < 0.5,
        },
        index=draw.permutation(n) + 1000,
    )
    counts = draw.integers(0, 4, n)
    of = np.repeat(np.arange(n), counts)
    answers = rows.iloc[of].reset_index(drop=True)
    answers["net_income"] += draw.integers(-3, 4, len(of)) * 100
    answers["rate"] = np.where(draw.random(len(of)) < 0.3, draw.random(len(of)), answers["rate"])
    answers["job"] = np.where(draw.random(len(of)) < 0.5, "nurse", answers["job"])
    answers["size"] = np.where(draw.random(len(of)) < 0.2, "L", answers["size"])
    none = np.flatnonzero(counts == 0)
    status = np.where(counts > 0, "found", "infeasible").astype(object)
    status[none[::3]] = "already"
    reason = np.full(n, "", dtype=object)
    missed = np.flatnonzero(status == "infeasible")
    reason[missed] = [f"the nearest row is {k / 3:.2f} nats short of plausible" for k in range(len(missed))]
    misses = rows.iloc[missed].reset_index(drop=True).assign(job="driver")
    features = (
        Feature(name="net_income", kind="integer", dtype=np.dtype(int), maximum=1e5, step=100.0),
        Feature(name="rate", kind="continuous", dtype=np.dtype(float), maximum=2.0),
        Feature(name="job", kind="category", dtype=rows["job"].dtype, levels=("clerk", "none", "nurse")),
        Feature(name="size", kind="ordered", dtype=rows["size"].dtype, levels=("S", "M", "L")),
        Feature(name="owner", kind="boolean", dtype=np.dtype(bool), levels=(False, True)),
    )
    target = draw.choice(["no", "yes"], n).astype(object)
    wanted = torch.tensor((target == "yes").astype(np.int64))
    return build(
        rows,
        answers,
        of,
        status=status,
        reason=reason,
        predicted=np.where(target == "yes", "no", "yes").astype(object),
        target=target,
        misses=misses,
        misses_of=missed,
        misses_why=[f"miss {i}" for i in missed],
        schema=Schema(features),
        outcome="home_loan",
        encoded=(torch.zeros(n, 1), torch.zeros(len(of), 1), wanted),
        held_out=PERCENTILES,
    )


@pytest.fixture(scope="module")
def page(many, tmp_path_factory):
    return page_of(many, tmp_path_factory.mktemp("page"), title="Loans & homes")


# The page


def test_the_page_has_one_heading_a_language_and_ordered_headings(page):
    assert page.raw.startswith("<!DOCTYPE html>\n")
    assert page.all("html")[0][0] == {"lang": "en"}
    assert [text for _, text in page.all("h1")] == ["Loans & homes"] == [t for _, t in page.all("title")][:1]
    depths = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert depths[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(depths))
    assert page.all("meta")[2][0]["name"] == "viewport"


def test_a_page_without_a_title_names_the_outcome(many, tmp_path):
    assert page_of(many, tmp_path).all("h1")[0][1] == "Counterfactuals: home loan"


def test_the_page_asks_no_network_for_anything(page):
    sources = [
        value
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "action", "srcset", "poster", "data")
    ]
    assert set(sources) == {"#rows", "data:,"}
    assert re.findall(r"(?:https?:)?//[\w.]+\.\w+", page.raw) == ["http://www.w3.org"]  # SVG's own name
    assert not re.search(r"@import|url\(|fetch|XMLHttp|innerHTML|eval\(", page.raw)


def test_the_policy_names_the_style_and_the_script_of_the_page(page):
    policy = page.all("meta")[1][0]["content"]
    assert policy.startswith("default-src 'none';")
    (style,) = [text for _, text in page.all("style")]
    (script,) = [text for attributes, text in page.all("script") if "type" not in attributes]
    for kind, text in (("style", style), ("script", script)):
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not [attributes for _, attributes in page.elements if "style" in attributes]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_pictures_tables_and_controls_have_names(page):
    assert len(page.all("svg")) > 5
    for attributes, _ in page.all("svg"):
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 5
    identities = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert {attributes["for"] for attributes, _ in page.all("label")} == {"search", "verdict", "order"}
    assert {"search", "verdict", "order"} <= set(identities)
    assert all(attributes.get("scope") in ("col", "row") for attributes, _ in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table")) > 5
    assert all(text for _, text in page.all("caption"))


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """As WCAG 2 defines it."""
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1, 2], ids=["light", "dark", "print"])
def test_every_text_has_a_contrast_of_at_least_four_and_a_half(theme):
    block = re.findall(r":root \{(.*?)\}", asset("style.css"), re.DOTALL)[theme]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))
    for ground in ("page", "panel"):
        for text in ("text", "quiet", "accent", "good", "bad"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        assert contrast(colours["bar"], colours[ground]) >= 3
    assert contrast(colours["marked-text"], colours["marked"]) >= 4.5


def test_no_text_is_smaller_than_twelve_pixels():
    sizes = re.findall(r"font(?:-size)?: ([\d.]+)(rem|px|pt)", asset("style.css"))
    pixels = {"rem": 16, "px": 1, "pt": 4 / 3}
    assert len(sizes) > 8
    assert min(float(size) * pixels[unit] for size, unit in sizes) >= 12
    assert "font" not in asset("script.js")


def test_every_verdict_and_figure_has_a_name():
    assert tuple(words.VERDICTS) == checks.STATUSES
    assert set(checks.FIGURES) < set(words.FIGURES)


# Numbers


def test_changes_in_the_page_are_those_of_the_result(many, page):
    data = page.data
    changes, rows, answers = data["changes"], data["rows"], data["answers"]
    found = []
    for i in range(len(many)):
        for rank, a in enumerate(range(*rows["first"][i : i + 2]), start=1):
            for c in range(*answers["first"][a : a + 2]):
                name = many.rows.columns[changes["column"][c]]
                found.append((int(rows["label"][i]), rank, name, changes["from"][c], changes["to"][c]))
    assert found == list(many.changes.itertuples(index=False, name=None))


def test_figures_in_the_page_are_those_of_the_result(many, page):
    for name in FIGURES:
        assert page.data["answers"][name] == many.figures[name].tolist()
    assert page.data["rows"]["probability"] == many.verdicts["probability"].tolist()
    assert page.data["rows"]["status"] == many.verdicts["status"].tolist()
    assert page.data["rows"]["sentence"] == many.sentences.tolist()


def test_every_value_of_every_row_is_written(many, page):
    columns = {column["name"]: column for column in page.data["columns"]}
    assert list(columns) == ["net income", "rate", "job", "size", "owner"]
    written = {name: [column["texts"][code] for code in column["codes"]] for name, column in columns.items()}
    assert written["net income"] == [f"{value:,}" for value in many.rows["net_income"]]
    assert written["rate"] == [f"{value:.3f}" for value in many.rows["rate"]]
    assert written["job"] == many.rows["job"].tolist()
    assert written["owner"] == many.rows["owner"].map({True: "yes", False: "no"}).tolist()
    assert len(columns["job"]["texts"]) == 3


def test_moves_are_in_ranges_of_the_feature(page):
    changes = page.data["changes"]
    ranks = {"S": 0, "M": 1, "L": 2}
    for j, before, after, move in zip(
        changes["column"], changes["from"], changes["to"], changes["move"], strict=True
    ):
        if j in (2, 4):
            assert move is None
        else:
            size = {0: lambda v: v / 1e5, 1: lambda v: v / 2, 3: lambda v: ranks[v] / 2}[j]
            assert move == pytest.approx(size(after) - size(before))


def test_nearest_misses_are_in_the_page(many, page):
    data = page.data
    for miss, i in enumerate(many.misses_of.tolist()):
        assert data["rows"]["misses"][i : i + 2] == [miss, miss + 1]
        assert data["misses"]["why"][miss] == f"miss {i}"
        cells = range(*data["misses"]["first"][miss : miss + 2])
        assert [data["missChanges"]["to"][c] for c in cells] == ["driver"]


def test_misses_in_any_order_go_to_their_rows(many, tmp_path):
    order = np.arange(len(many.misses_of))[::-1]
    parts = {name: getattr(many, name) for name in ("figures", "verdicts", "schema", "labels")}
    turned = Explanations(
        rows=many.rows,
        answers=many.answers,
        of=many.of,
        misses=many.misses.iloc[order].reset_index(drop=True),
        misses_of=many.misses_of[order],
        misses_why=[many.misses_why[k] for k in order],
        **parts,
    )
    data = page_of(turned, tmp_path).data
    assert data["misses"]["why"] == [f"miss {i}" for i in many.misses_of]


def test_the_share_of_real_rows_that_are_less_dense_is_the_normal_ones(many, page):
    data = page.data
    assert [curve["label"] for curve in data["curves"]] == ["no", "yes"]
    centre = np.where(many.verdicts["target"].to_numpy()[many.of] == "yes", 1.0, 0.0)
    expected = norm.cdf(many.figures["score"], centre, 2.0)
    np.testing.assert_allclose(data["answers"]["denser"], np.clip(expected, 0, 1), atol=0.01)


def test_the_curve_is_the_density_that_percentiles_come_from():
    points = np.array(charts.density_points(PERCENTILES[1]))
    expected = norm.pdf(points[:, 0], 1.0, 2.0) / norm.pdf(1.0, 1.0, 2.0)
    assert points[:, 1].max() == 1.0
    assert np.abs(points[:, 1] - expected).max() < 0.08
    assert points[0, 0] < norm.ppf(0.04, 1.0, 2.0) < 0 < points[-1, 0]


def test_constant_scores_still_have_a_curve():
    assert np.isfinite(charts.density_points(np.full(101, 0.3))).all()


def test_the_summary_counts_what_pandas_counts(many, page):
    tables, status = page.tables(), many.verdicts["status"]
    lines = tables["How many rows have each verdict"][1:]
    counts = {line[0].split("\u00a0")[1]: int(line[1]) for line in lines}
    assert counts == status.value_counts().to_dict()
    needed = (status != "already").sum()
    share = f"{(status == 'found').sum()} of the {needed} that need an answer"
    assert share in page.all("p")[0][1]
    lines = tables["home loan: from what is predicted to what is wanted"][1:]
    crossed = pd.crosstab(many.verdicts["predicted"], many.verdicts["target"])
    assert {(line[0], line[1]): int(line[2]) for line in lines} == {
        ("no", "yes"): crossed.loc["no", "yes"],
        ("yes", "no"): crossed.loc["yes", "no"],
    }


@pytest.mark.parametrize("target", ["no", "yes"])
def test_the_summary_says_how_often_and_how_far_features_change(many, page, target):
    lines = page.tables()[f"Features that change towards {target}, in rows with the verdict found"][1:]
    named = {line[0]: line for line in lines}
    chosen = (many.verdicts["status"] == "found").to_numpy() & (many.verdicts["target"] == target).to_numpy()
    before, after = many.rows[chosen], many.counterfactuals[chosen]
    moved = after["net_income"].to_numpy(float) - before["net_income"].to_numpy(float)
    line = named["net income"]
    assert int(line[1]) == (moved != 0).sum()
    assert line[2].startswith(f"{(moved != 0).mean():.1%}"[:-1].removesuffix(".0"))
    assert line[3].startswith(f"{(moved > 0).sum()} time")
    assert f"median {np.median(-moved[moved < 0]):g}" in line[4]
    assert int(named["job"][1]) == (after["job"] != before["job"]).sum()
    assert "owner" not in named


def test_reasons_that_differ_in_a_distance_only_are_counted_together(many, page):
    lines = page.tables()["Reasons of verdicts"][1:]
    count = (many.verdicts["reason"] != "").sum()
    assert lines == [["the nearest row is some nats short of plausible", "infeasible", str(count)]]


def test_measures_are_those_of_the_best_answers(many, page):
    lines = {line[0]: line[1:] for line in page.tables()["What was measured"][1:]}
    best = many.figures["cost"][np.unique(many.of, return_index=True)[1]]
    expected = [best.mean(), *best.quantile([0.1, 0.5, 0.9])]
    assert lines["Cost of the changes"] == [f"{value:.4g}" for value in expected]


def test_a_histogram_has_bars_as_numpy_counts_them():
    values = np.random.default_rng(0).normal(0.5, 1.0, 400)
    picture = Page(charts.histogram(values, title="Score", line="threshold"))
    bars = [attributes for attributes, _ in picture.all("rect")]
    heights = np.array([float(attributes["height"]) for attributes in bars])
    low, high = min(values.min(), 0.0), max(values.max(), 0.0)
    step = (high - low) / charts.BINS
    counts, _ = np.histogram(values, step * np.arange(np.floor(low / step), np.ceil(high / step) + 1))
    np.testing.assert_allclose(heights / heights.max(), counts / counts.max(), atol=1e-3)
    below = [float(a["height"]) for a in bars if a.get("class") == "below"]
    assert sum(below) / heights.sum() == pytest.approx((values < 0).mean(), abs=0.005)
    assert picture.all("svg")[0][0]["aria-label"].startswith("Score: 400 values from ")


@pytest.mark.parametrize("values", [[2.0], [0.0, 0.0], [1e-300, 2e-300], [3.0, 1e6], [-1e9, 1e9]])
@pytest.mark.parametrize("settings", [{}, {"whole": True}, {"line": "threshold"}])
def test_a_histogram_of_anything_stays_in_its_frame(values, settings):
    page = Page(charts.histogram(np.array(values), title="x", **settings))
    for attributes, _ in page.all("rect"):
        assert -0.01 <= float(attributes["x"]) <= charts.WIDTH
        assert 0 <= float(attributes["width"]) <= charts.WIDTH
        assert float(attributes["y"]) + float(attributes["height"]) == pytest.approx(charts.BASE, abs=0.2)
    assert charts.histogram(np.array([np.nan]), title="x", **settings) == ""


# Text that would act


def made_of(texts):
    """A result with these texts wherever people can have texts."""
    rows = pd.DataFrame({name: [value, "a"] for name, value in zip(texts, texts[::-1], strict=True)})
    rows.index = pd.Index(texts[:2], name=texts[2])
    answers = rows.iloc[[0]].reset_index(drop=True).assign(**dict.fromkeys(texts[:3], texts[4]))
    misses = {"misses": rows.iloc[[1]].assign(**{texts[0]: texts[1]}), "misses_of": np.array([1])}
    said = {
        name: np.array([texts[place], texts[place + 3]], dtype=object)
        for place, name in enumerate(("reason", "predicted", "target"))
    }
    return build(rows, answers, [0], outcome=texts[0], misses_why=[texts[6]], **misses, **said)


def test_hostile_text_stays_text(tmp_path):
    tame = page_of(made_of(list("abcdefgh")), tmp_path, title="a")
    wild = page_of(made_of(EVIL), tmp_path, title=EVIL[0])
    assert [tag for tag, _ in wild.elements] == [tag for tag, _ in tame.elements]
    assert [sorted(a) for _, a in wild.elements] == [sorted(a) for _, a in tame.elements]
    assert wild.all("h1")[0][1] == EVIL[0]
    assert "\u2028" not in json_for_script(EVIL)
    ((start, stop),) = [m.span(1) for m in re.finditer(r'id="data">(.*?)</script>', wild.raw)]
    assert not set("<>&\u2028\u2029") & set(wild.raw[start:stop])
    data = wild.data
    assert data["rows"]["label"] == EVIL[:2]
    assert data["rows"]["reason"] == [EVIL[0], EVIL[3]]
    assert [column["name"] for column in data["columns"]] == EVIL
    assert data["changes"]["to"] == [EVIL[4]] * 3
    assert data["misses"]["why"] == [EVIL[6]]


def test_hostile_text_stays_text_in_notebooks():
    page = Page(made_of(EVIL)._repr_html_())
    assert {tag for tag, _ in page.elements} <= {
        *("div", "p", "table", "thead", "tbody", "tr", "th", "td", "strong", "br")
    }
    assert page.all("th")[-2][1] == EVIL[0]


@pytest.mark.parametrize("text", ["\x00", "a\x1bb", "\ufffe", "\x85"])
def test_characters_that_a_page_cannot_hold_are_replaced(text):
    assert "\ufffd" in shown(text)
    assert text not in shown(text)


def test_text_that_is_no_utf_8_can_be_written(tmp_path):
    rows = pd.DataFrame({"a": pd.Series(["\udc80", "b"], dtype=object)})
    page = page_of(build(rows, rows.iloc[:0], []), tmp_path)
    assert page.data["columns"][0]["texts"] == ["\udc80", "b"]


def test_cells_of_a_table_are_escaped_unless_they_are_markup():
    page = Page(table("<i>", ["<b>"], [["<u>"]]))
    assert [text for _, text in page.all("caption") + page.all("th")] == ["<i>", "<b>", "<u>"]


# Any result


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
        np.arange(6.0), [0, 2], status=[*words.VERDICTS], reason=["", *("why" for _ in range(5))]
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_any_result_has_a_page_and_a_table_for_notebooks(name, tmp_path):
    result = RESULTS[name]()
    page = page_of(result, tmp_path)
    data, n = page.data, len(result)
    assert {len(data["rows"][field]) for field in ("label", "status", "sentence", "curve")} == {n}
    assert len(data["rows"]["first"]) == n + 1
    plain = page.tables()["Every row and its best answer"][1:]
    assert [line[4] for line in plain] == result.sentences.tolist()
    small = Page(result._repr_html_())
    assert not small.all("script")
    assert len(small.all("tr")) == 1 + min(n, 10)
    assert repr(result) in small.all("p")[0][1]


def test_labels_are_written_as_people_read_them(tmp_path):
    assert page_of(RESULTS["two levels"](), tmp_path).data["rows"]["label"] == ["x, 1", "x, 1"]
    assert page_of(RESULTS["bool labels"](), tmp_path).data["rows"]["target"] == ["yes"]
    assert page_of(RESULTS["int labels"](), tmp_path).data["rows"]["target"] == ["1"]
    assert page_of(RESULTS["nothing predicted"](), tmp_path).data["rows"]["target"] == ["", ""]
    data = page_of(RESULTS["missing values"](), tmp_path).data
    assert data["columns"][0]["texts"] == ["missing", "1"]
    assert data["rows"]["probability"] == [None] * 3


def test_a_number_that_is_predicted_has_intervals_and_curves(tmp_path):
    page = page_of(intervals(), tmp_path)
    data = page.data
    assert data["rows"]["target"] == ["5 to 6.5", "at least 2", ""]
    assert data["rows"]["predicted"] == ["1.25", "3", ""]
    assert data["rows"]["curve"] == [0, 1, -1]
    assert data["answers"]["prediction"] == [5.5, 2.25]
    assert "probability" not in data["answers"]
    assert "Features that change, in rows with the verdict found" in page.tables()


def test_two_thousand_rows_stay_under_ten_megabytes(tmp_path):
    draw, n, d, k = np.random.default_rng(0), 2000, 23, 3
    names = [f"feature_number_{j}" for j in range(d)]
    some = pd.DataFrame(draw.random((40, d)) * 1000, columns=names)
    rows = pd.concat([some] * (n // 40), ignore_index=True)
    answers = rows.loc[np.repeat(np.arange(n), k)].reset_index(drop=True)
    answers[names[:5]] += draw.random((n * k, 5))
    features = [Feature(name=name, kind="continuous", dtype=np.dtype(float), maximum=1e3) for name in names]
    figures = pd.DataFrame(np.sort(draw.random((n * k, 8)), axis=0), columns=FIGURES)
    result = build(rows, answers, np.repeat(np.arange(n), k), schema=Schema(tuple(features)), figures=figures)
    result.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 10e6


def test_many_answers_are_folded(tmp_path):
    rows = pd.DataFrame({"a": ["x"]})
    page = page_of(build(rows, pd.DataFrame({"a": list("abcdefgh")}), [0] * 8), tmp_path)
    ((card,),) = [step["cards"] for step in run_script(page, tmp_path, [])]
    assert len(node_of(card, "li")) == 5
    assert text_of(node_of(card, "summary")[0]) == "2 more answers"


# What notebooks show


def test_a_notebook_shows_counts_and_new_values_in_bold(many):
    page = Page(many._repr_html_())
    counts = many.verdicts["status"].value_counts()
    assert f"{counts['found']} found" in page.all("p")[0][1]
    assert f"and {len(many) - 10} more rows" in page.all("p")[1][1]
    best = many.changes[(many.changes["rank"] == 1) & many.changes["row"].isin(many.rows.index[:10])]
    assert len(page.all("strong")) == len(best)
    assert not [a for a in page.elements if a[0] in ("script", "style")]


def test_an_explainer_that_is_not_fitted_says_so():
    explainer = Explainer(LinearClassifier(), constraints=[Immutable("<b>")], confidence=None)
    page = Page(explainer._repr_html_())
    facts = dict(zip([t for _, t in page.all("th")], [t for _, t in page.all("td")], strict=True))
    assert facts["fitted"].startswith("no")
    assert facts["model"] == "LinearClassifier"
    assert facts["rules"] == 'Immutable("<b>")'
    assert "taken for" not in facts


def test_an_explainer_shows_what_it_knows():
    frame = pd.DataFrame({f"c{j}": np.arange(20.0) * (j + 1) for j in range(9)}).assign(job=["a", "b"] * 10)
    explainer, encoder = (
        Explainer(LinearClassifier(), constraints=[Decreasing("c1")]),
        Encoder(Schema.infer(frame)),
    )
    explainer.encoder_ = encoder
    model = LinearClassifier.from_weights(torch.ones(1, encoder.layout.width), torch.zeros(1))
    explainer.model_ = EncodedModel(model, ("<no>", "<yes>"))
    page = Page(explainer._repr_html_())
    facts = dict(zip([t for _, t in page.all("th")], [t for _, t in page.all("td")], strict=True))
    assert facts["fitted"] == "yes"
    assert facts["outcome"] == "<no>, <yes>"
    assert facts["data"].startswith("10 features (9 integer, 1 category): c0, c1,")
    assert facts["data"].endswith("and 2 more")
    assert facts["taken for"] == explainer.model_.says
    assert not page.all("script")


# How dense real rows are


@pytest.fixture(scope="module")
def brief():
    """Densities that learn for a moment only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(levels, "LEVELS_TRAINING", Training(epochs=1))
        patch.setattr(fitting, "MEMBERS", 2)
        patch.setattr(fitting, "CALIBRATION_ROWS", 6)
        yield


def test_an_ensemble_keeps_the_percentiles_of_rows_it_has_not_seen():
    x, y = torch.randn(161, 2), torch.arange(161) % 3 % 2
    base = ConditionalFlow(training=Training(epochs=1))
    ensemble = CrossFitEnsemble(members=2, base=base, quantile=0.3, workers=1).fit(x, y)
    part = split_by_class(y, 2, ensemble.seed)
    own = ensemble.member_scores(x, y)[part, torch.arange(161)].numpy()
    for k in (0, 1):
        expected = np.quantile(own[y == k], np.linspace(0, 1, 101), method="inverted_cdf")
        np.testing.assert_allclose(ensemble.held_out_[k], expected, atol=1e-9)
    again = CrossFitEnsemble(members=2, base=base).load_state(ensemble.state())
    assert torch.equal(again.held_out_, ensemble.held_out_)
    older = {name: value for name, value in ensemble.state().items() if name != "held_out"}
    assert CrossFitEnsemble(members=2, base=base).load_state(older).held_out_.numel() == 0


def test_rows_count_as_much_as_they_weigh():
    scores, weights = torch.randn(60), torch.rand(60)
    found = spread_of(scores, torch.zeros(60, dtype=torch.long), weights, 2)
    expected = np.quantile(scores, np.linspace(0, 1, 101), weights=weights, method="inverted_cdf")
    np.testing.assert_allclose(found[0], expected)
    assert found[1].isnan().all()


def test_the_code_of_the_documentation_runs(brief, tmp_path, monkeypatch):
    text = (Path(__file__).parents[1] / "docs" / "report.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    space = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlausibilityWarning)  # a density that hardly learned
        exec(compile(code, "report.md", "exec"), space)
    result, page = space["result"], Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.all("h1")[0][1] == "Loans of this week"
    needed = [i for i, curve in enumerate(page.data["rows"]["curve"]) if curve >= 0]
    assert len(needed) == len(result) == 20
    held_out = space["explainer"].finder_.plausibility.held_out_
    share = np.interp(result.figures["score"], held_out[0], np.linspace(0, 1, 101))
    np.testing.assert_allclose(page.data["answers"]["denser"], share)


# The script


FAKE_PAGE = """
const fs = require("fs");
class Element {
  constructor(tag) { Object.assign(this, { tag, attributes: {}, children: [], listeners: {} }); }
  setAttribute(name, value) { this.attributes[name] = value; }
  append(...parts) { this.children.push(...parts); }
  replaceChildren(...parts) { this.children = parts; }
  addEventListener(name, act) { this.listeners[name] = act; }
  focus() { focused = this; }
  set textContent(text) { this.children = [text]; }
  get textContent() { return this.children.map((c) => (typeof c === "string" ? c : c.textContent)).join(""); }
}
let focused = null;
const places = {};
for (const id of ["cards", "pages", "shown", "controls", "rows", "search", "verdict", "order"]) {
  places[id] = new Element("div");
}
places.data = { textContent: fs.readFileSync(process.argv[2], "utf8") };
globalThis.document = {
  getElementById: (id) => places[id],
  createElement: (tag) => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
};
(0, eval)(fs.readFileSync(process.argv[3], "utf8"));
const seen = [];
const see = () => seen.push({ shown: places.shown.textContent, cards: places.cards.children });
const set = (id, value) => { places[id].listeners.input({ target: { value } }); see(); };
see();
for (const [id, value] of JSON.parse(process.argv[4])) {
  if (id === "next") { places.pages.children[1].listeners.click(); see(); } else { set(id, value); }
}
console.log(JSON.stringify(seen));
"""


def node_of(tree, tag):
    """Every element of a kind below one."""
    own = [tree] if tree["tag"] == tag else []
    return own + [e for child in tree["children"] if isinstance(child, dict) for e in node_of(child, tag)]


def text_of(tree):
    return "".join(child if isinstance(child, str) else text_of(child) for child in tree["children"])


def run_script(page, folder, steps):
    """What the script shows at first, and after each step, on a page that only remembers."""
    if shutil.which("node") is None:
        pytest.skip("needs node, to run the report's script")
    (folder / "data.json").write_text(json.dumps(page.data))
    (folder / "script.js").write_text(asset("script.js"))
    (folder / "page.js").write_text(FAKE_PAGE)
    files = [str(folder / name) for name in ("page.js", "data.json", "script.js")]
    done = subprocess.run(
        ["node", *files, json.dumps(steps)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_script_shows_filters_orders_and_pages_cards(many, page, tmp_path):
    steps = [
        ("next", ""),
        ("verdict", "found"),
        ("order", "cost"),
        ("search", "NURSE clerk"),
        ("search", "%%"),
    ]
    first, second, found, dear, some, none = run_script(page, tmp_path, steps)
    assert first["shown"] == "Cards 1 to 20 of 90, page 1 of 5"
    assert second["shown"] == "Cards 21 to 40 of 90, page 2 of 5"
    labels = [text_of(node_of(card, "h3")[0]) for card in first["cards"] + second["cards"]]
    assert [int(re.match(r"Row (\d+)", text)[1]) for text in labels] == many.rows.index[:40].tolist()
    count = (many.verdicts["status"] == "found").sum()
    assert found["shown"] == f"Cards 1 to 20 of {count}, page 1 of {-(-count // 20)}"
    best = many.figures["cost"].groupby(many.of).first().sort_values(ascending=False)
    expected = [f"Row {label}✓\u00a0found" for label in many.rows.index[best.index[:20]]]
    assert [text_of(node_of(card, "h3")[0]) for card in dear["cards"]] == expected
    assert 0 < len(some["cards"]) < count
    assert (none["shown"], none["cards"]) == ("No row fits.", [])


def test_cards_hold_what_the_result_says(many, page, tmp_path):
    (first,) = run_script(page, tmp_path, [])
    changes = many.changes[many.changes["rank"] == 1].groupby("row")["feature"].agg(list)
    for i, card in enumerate(first["cards"]):
        one, text = many[i], text_of(card)
        assert one.sentence in text
        changed = [e for e in node_of(card, "tr") if e["attributes"].get("class") == "changed"]
        if one.counterfactuals:
            expected = changes.get(one.row, [])
            assert [text_of(node_of(e, "th")[0]) for e in changed] == [n.replace("_", " ") for n in expected]
            assert len(node_of(card, "li")) == len(one.counterfactuals) - 1
            assert len(node_of(card, "circle")) == len(one.counterfactuals)
        for _, why in one.misses:
            assert why in text
            assert len(changed) == 1
        for svg in node_of(card, "svg"):
            assert svg["attributes"]["role"] == "img"
            assert svg["attributes"]["aria-label"] == text_of(node_of(svg, "title")[0])


@pytest.mark.parametrize("name", RESULTS)
def test_the_script_runs_on_any_result(name, tmp_path):
    result = RESULTS[name]()
    (first,) = run_script(page_of(result, tmp_path), tmp_path, [])
    assert len(first["cards"]) == len(result)
    assert "undefined" not in json.dumps(first)
    assert "NaN" not in json.dumps(first)


@pytest.mark.browser
def test_a_browser_shows_the_cards_and_has_nothing_to_complain(many, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium, to open the report")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, to open the report")
    many.to_html(tmp_path / "report.html")
    said, asked = [], []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 360, "height": 740})
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((tmp_path / "report.html").as_uri())
        assert page.locator(".card").count() == 20
        page.get_by_label("Verdict", exact=True).select_option("infeasible")
        assert page.locator(".card").count() == min(20, (many.verdicts["status"] == "infeasible").sum())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        browser.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
