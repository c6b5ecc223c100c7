"""The first part of a report: what many explanations say together."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pandas as pd

from plausiflow.report.charts import histogram, share_bar
from plausiflow.report.content import Content
from plausiflow.report.markup import Html, element, joined, table
from plausiflow.report.words import FIGURES, VERDICTS, counted, number_text, share_text
from plausiflow.tables import Numbers

MOST_LINES, OPEN_OUTCOMES = 12, 3
_NATS = re.compile(r"\d+(\.\d+)? nats")


def overview(content: Content) -> Html:
    """All sections, under one heading."""
    best = content.answers.drop_duplicates("of")
    sections = [
        _section("Verdicts", headline(content), _verdicts(content), _outcomes(content)),
        _section("What changes", *_features(content)),
        _section("Plausibility", *_plausibility(content, best)),
        _section("Distances", *_distances(best)),
        _section("Reasons", *_reasons(content)),
    ]
    return element(
        "section", {"aria-labelledby": "summary"}, element("h2", {"id": "summary"}, "Summary"), *sections
    )


def headline(content: Content) -> Html:
    """How many of the rows that need an answer have one."""
    status = content.rows["status"]
    needed, found = int((status != "already").sum()), int((status == "found").sum())
    text = f"{counted(len(status), 'row')} explained."
    if needed:
        text += f" {found:,} of the {needed:,} that need an answer have one ({share_text(found, needed)})."
    return element("p", {"class": "headline"}, text)


def _section(title: str, *inside: str) -> Html:
    parts = [part for part in inside if part]
    if not parts:
        return Html("")
    return element("section", {"class": "panel"}, element("h3", None, title), *parts)


def _verdicts(content: Content) -> Html:
    counts = content.rows["status"].value_counts()
    lines = []
    for status, (sign, name, meaning) in VERDICTS.items():
        count = int(counts.get(status, 0))
        if count:
            share = share_text(count, len(content.rows))
            bar = share_bar(count / len(content.rows), f"{name}: {share}")
            lines.append([f"{sign}\u00a0{name}", f"{count:,}", joined([share, bar]), meaning])
    head, caption = ["Verdict", "Rows", "Share", "Meaning"], "How many rows have each verdict"
    return table(caption, head, lines, numbers=(1,), words=(3,)) if lines else Html("")


def _outcomes(content: Content) -> Html:
    """Predicted and wanted outcomes, and what became of them; the most common ones."""
    rows = content.rows
    before = pd.Series("a number", index=rows.index) if content.measured else rows["predicted"]
    pairs = rows["status"].groupby([before, rows["target"]], sort=False)
    lines = [
        [*map(str, pair), f"{len(status):,}", f"{(status == 'found').sum():,}", _others(status)]
        for pair, status in sorted(pairs, key=lambda pair: -len(pair[1]))
    ]
    caption = f"{content.outcome}: from what is predicted to what is wanted"
    head = ["Predicted", "Targets", "Rows", "Found", "Others"]
    return _shortened(caption, head, lines, numbers=(2, 3), words=(4,)) if lines else Html("")


def _others(status: pd.Series) -> str:
    counts = status[status != "found"].value_counts()
    return ", ".join(f"{counts[name]:,} {VERDICTS[name][1]}" for name in VERDICTS if counts.get(name)) or "–"


def _features(content: Content) -> list[Html]:
    """One table for each wanted outcome, features that change most often first."""
    parts = []
    targets = content.features["target"].unique().tolist()
    for place, target in enumerate(targets):
        own = content.features[content.features["target"] == target]
        own = own[own["changed"] > 0].sort_values("share", ascending=False, kind="stable")
        lines = [_feature(line) for line in own.to_dict("records")]
        towards = f" towards {target}" if target else ""
        caption = f"Features that change{towards}, in rows with the verdict found"
        if not lines:
            continue
        head = ["Feature", "Rows", "Share", "Rises", "Falls", "Most common change"]
        made = _shortened(caption, head, lines, numbers=(1,), words=(3, 4, 5))
        parts.append(made if place < OPEN_OUTCOMES else _folded(caption, made))
    return parts


def _feature(line: dict[str, object]) -> list[str]:
    share = float(str(line["share"]))
    text = share_text(share)
    ways = [
        f"{counted(int(str(line[count])), 'time')}, median {line[median]}" if line[count] else "–"
        for count, median in (("rises", "median_rise"), ("falls", "median_fall"))
    ]
    times = int(str(line["transitions"]))
    common = f"{line['transition']} ({counted(times, 'time')})" if times else "–"
    name = str(line["feature"])
    told = joined([text, share_bar(share, f"{name}: {text}")])
    return [name, f"{line['changed']:,}", told, *ways, common]


def _plausibility(content: Content, best: pd.DataFrame) -> list[Html]:
    score = _known(best, "score")
    if not len(score):
        return []
    above = int((score >= 0).sum())
    texts = [f"{above:,} of {counted(len(score), 'best answer')} reach the threshold."]
    denser = _known(best, "denser")
    if len(denser):
        texts.append(
            f"Half of them are denser than {share_text(float(np.median(denser)))} of real rows or more."
        )
    judged = _known(best, "judged")
    if len(judged):
        texts.append(
            f"On average {share_text(float(judged.mean()))} of the judges, which guided nothing, agree."
        )
    picture = histogram(score, title="Nats above the threshold", line="threshold")
    return [element("p", None, " ".join(texts)), _figure(picture, "Nats above the threshold, best answers")]


def _distances(best: pd.DataFrame) -> list[Html]:
    if best.empty:
        return []
    pictures = [
        _figure(histogram(_known(best, "cost"), title="Cost"), "Cost of the changes, best answers"),
        _figure(
            histogram(_known(best, "n_changes"), title="Features that change", whole=True),
            "Features that change, best answers",
        ),
    ]
    lines = []
    for name, title in FIGURES.items():
        values = _known(best, name)
        if len(values):
            low, middle, high = np.quantile(values, [0.1, 0.5, 0.9]).tolist()
            lines.append([title, *map(number_text, (float(values.mean()), low, middle, high))])
    head = ["Of the best answers", "Mean", "10 % below", "Median", "10 % above"]
    numbers = table("What was measured", head, lines, numbers=(1, 2, 3, 4))
    return [element("div", {"class": "pictures"}, *pictures), numbers]


def _reasons(content: Content) -> list[Html]:
    """Why rows have no answer, or one with a remark; how far each is from plausible is left to its card."""
    rows = content.rows[content.rows["reason"] != ""]
    if rows.empty:
        return []
    reasons = rows["reason"].map(lambda reason: _NATS.sub("some nats", reason))
    counts = Counter(zip(reasons, rows["status"], strict=True))
    lines = [[reason, VERDICTS[status][1], f"{count:,}"] for (reason, status), count in counts.most_common()]
    return [_shortened("Reasons of verdicts", ["Reason", "Verdict", "Rows"], lines, numbers=(2,), words=(0,))]


def _known(answers: pd.DataFrame, name: str) -> Numbers:
    """The numbers of a figure that are known."""
    values = answers[name].to_numpy(np.float64) if name in answers else np.empty(0)
    return values[np.isfinite(values)]


def _figure(picture: Html, caption: str) -> Html:
    return element("figure", None, picture, element("figcaption", None, caption)) if picture else Html("")


def _folded(title: str, inside: Html) -> Html:
    return element("details", None, element("summary", None, title), inside)


def _shortened(
    caption: str,
    head: list[str],
    lines: list[list[str]],
    *,
    numbers: tuple[int, ...],
    words: tuple[int, ...],
) -> Html:
    """A table of the first lines; the others can be unfolded."""
    first, rest = lines[:MOST_LINES], lines[MOST_LINES:]
    made = table(caption, head, first, numbers=numbers, words=words)
    if not rest:
        return made
    title = f"{caption}: {len(rest):,} more"
    return joined([made, _folded(title, table(title, head, rest, numbers=numbers, words=words))])
