"""Summaries, groups and metrics of many rows together are those of pandas and of the metrics."""

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from plausiflow.core import metrics
from plausiflow.densities import KDE, Thresholded
from plausiflow.errors import InvalidInputError
from plausiflow.models import LinearClassifier
from plausiflow.tables.features import Feature
from plausiflow.tables.schema import Schema
from results import FIGURES, build, loans


@pytest.fixture(scope="module")
def many():
    """300 rows with an answer each, or none: numbers that move, a category that flips, two classes."""
    rng = np.random.default_rng(0)
    n = 300
    rows = pd.DataFrame(
        {
            "income": rng.integers(100, 900, n) * 100,
            "job": rng.choice(["clerk", "nurse", "none"], n),
            "sex": rng.choice(["f", "m"], n),
        },
        index=rng.integers(0, 50, n),
    )
    of = np.flatnonzero(rng.random(n) < 0.8)
    answers = rows.iloc[of].reset_index(drop=True)
    answers["income"] += rng.integers(-3, 4, len(of)) * 100
    answers["job"] = np.where(rng.random(len(of)) < 0.5, "nurse", answers["job"])
    status = np.full(n, "infeasible", dtype=object)
    status[rng.random(n) < 0.5] = "already"
    status[of] = "found"
    features = (
        Feature(name="income", kind="integer", dtype=np.dtype(int), maximum=1e5, step=100.0),
        Feature(name="job", kind="category", dtype=rows["job"].dtype, levels=("clerk", "none", "nurse")),
        Feature(name="sex", kind="category", dtype=rows["sex"].dtype, levels=("f", "m")),
    )
    target = rng.choice(["denied", "granted"], n).astype(object)
    return build(
        rows,
        answers,
        of,
        status=status,
        target=target,
        schema=Schema(features),
        labels=("granted", "denied"),
    )


def test_a_summary_counts_verdicts(many):
    expected = many.status["status"].value_counts()
    assert many.summary().statuses.to_dict() == expected.to_dict()
    assert sum(expected) == 300
    counts = f"{expected['found']} found, {expected['already']} already, {expected['infeasible']} infeasible"
    assert repr(many) == f"Explanations(300 rows: {counts})"
    assert str(many.summary()).startswith(f"300 rows: {counts}\n")


def test_a_summary_says_what_changes_towards_each_class(many):
    features = many.summary().features
    assert features.index.get_level_values(0).unique().tolist() == ["granted", "denied"]
    for target in ("granted", "denied"):
        chosen = (many.status["status"] == "found").to_numpy() & (many.status["target"] == target).to_numpy()
        before, after = many.rows[chosen], many.counterfactuals[chosen]
        moved = after["income"].to_numpy(float) - before["income"].to_numpy(float)
        line = features.loc[(target, "income")]
        assert line["share"] == pytest.approx((moved != 0).mean())
        assert (line["rises"], line["falls"]) == ((moved > 0).sum(), (moved < 0).sum())
        assert line["median_rise"] == np.median(moved[moved > 0])
        assert line["median_fall"] == np.median(-moved[moved < 0])
        moves = pd.Series([f"{a} → {b}" for a, b in zip(before["job"], after["job"], strict=True) if a != b])
        line = features.loc[(target, "job")]
        assert line["changed"] == len(moves)
        assert line["transitions"] == moves.value_counts().max()
        assert (moves == line["transition"]).sum() == line["transitions"]
        assert features.loc[(target, "sex"), "changed"] == 0
        assert f"{line['transition']} ({line['transitions']} of {line['changed']})" in str(many.summary())
    assert "towards granted" in str(many.summary())
    assert "sex" not in str(many.summary())


def test_groups_are_those_of_pandas(many):
    groups = many.summary(by="sex").groups
    for sex, line in groups.iterrows():
        status = many.status["status"][(many.rows["sex"] == sex).to_numpy()]
        assert line["rows"] == len(status)
        assert line["already"] == (status == "already").sum()
        assert line["found"] == (status == "found").sum()
        assert line["found_share"] == pytest.approx(line["found"] / (status != "already").sum())
        cost = many.figures["cost"][(many.rows["sex"].iloc[many.of] == sex).to_numpy()]
        assert line["mean_cost"] == pytest.approx(cost.mean())
    assert groups["rows"].sum() == 300
    assert "found_share" in str(many.summary(by="sex"))


def test_groups_may_come_as_a_series_by_position(many):
    by = pd.Series(many.rows["sex"].to_numpy(), index=range(1000, 1300), name="sex")
    assert_frame_equal(many.summary(by=by).groups, many.summary(by="sex").groups, check_index_type=False)
    missing = many.summary(by=["a"] * 150 + [None] * 150).groups
    assert missing["rows"].tolist() == [150, 150]


def test_a_group_that_needs_no_answer_has_no_share():
    parts = loans()
    result = build(**parts, status=["found", "already", "found"])
    groups = result.summary(by="job").groups
    assert np.isnan(groups["found_share"]["nurse"])
    assert groups["found_share"]["clerk"] == 1.0


@pytest.mark.parametrize(
    ("by", "message"), [("age", "one of income, job, sex.*'age'"), ([1, 2], "300 values")]
)
def test_groups_that_cannot_be_used_raise(many, by, message):
    with pytest.raises(InvalidInputError, match=message):
        many.summary(by=by)


def test_a_number_that_was_missing_neither_rises_nor_falls():
    parts = loans()
    parts["rows"].loc["Cid", "rate"] = np.nan
    summary = build(**parts).summary()
    line = summary.features.loc[(1, "rate")]
    assert (line["changed"], line["rises"], line["falls"]) == (1, 0, 0)
    assert "was missing" in str(summary)


def test_targets_that_are_no_labels_are_summed_up_together():
    result = build(**loans(), labels=(), target=[(0.0, 0.5), None, (0.5, 1.0)])
    assert result.summary().features.index.get_level_values(0).unique().tolist() == ["all"]
    assert "What changes:\n" in str(result.summary())


def test_metrics_without_a_context_are_means_of_the_figures(many):
    found = many.metrics()
    assert found["coverage"] == pytest.approx(len(many.of) / (many.status["status"] != "already").sum())
    for name in FIGURES:
        assert found[name] == pytest.approx(many.figures[name].mean())


def test_metrics_with_a_context_are_those_of_the_best_answers():
    rows = pd.DataFrame({"a": [0.1, 0.2, 0.9, 0.3], "b": [0.5, 0.4, 0.6, 0.1]})
    answers = pd.DataFrame({"a": [0.8, 0.9, 0.7], "b": [0.5, 0.4, 0.4]})
    x_train = torch.rand(60, 2)
    classifier = LinearClassifier.from_weights(torch.tensor([[4.0, 0.0]]), torch.tensor([-2.0]))
    density = KDE(bandwidth=0.2).fit(x_train, (x_train[:, 0] > 0.5).long())
    plausibility = Thresholded(density=density).fit(x_train, (x_train[:, 0] > 0.5).long())
    context = metrics.Context(
        classifier=classifier,
        plausibility=plausibility,
        x_train=x_train,
        y_train=(x_train[:, 0] > 0.5).long(),
    )
    x, x_cf = torch.tensor(rows.to_numpy()), torch.tensor(answers.to_numpy())
    result = build(
        rows,
        answers,
        [0, 0, 1],
        status=["found", "found", "already", "infeasible"],
        encoded=(x, x_cf, torch.ones(4, dtype=torch.long)),
        context=context,
    )
    found = result.metrics()
    assert found["coverage"] == pytest.approx(2 / 3)
    assert found["feasible"] == pytest.approx(found["plausibility"] * 2 / 3)
    assert found["validity"] == 1.0
    assert found["l2"] == pytest.approx((0.7 + 0.5) / 2)
    wanted = torch.ones(2, dtype=torch.long)
    assert found["log_density"] == pytest.approx(float(density.log_prob(x_cf[[0, 2]], wanted).mean()))
    assert found["judged"] == result.figures["judged"][[0, 2]].mean()
    assert "seconds" not in found
    with pytest.raises(InvalidInputError, match="variant"):
        result.metrics(variant="other")
