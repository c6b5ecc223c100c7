"""The result of explaining many rows with few actions."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
import pandas as pd

from plausiflow import plots
from plausiflow.explanations import Audit, Explanations, answer_table, json_column, json_value, report_content
from plausiflow.groups.actions import FORMS, Actions
from plausiflow.groups.tree import MembershipTree, map_uncovered
from plausiflow.groups.words import describe_action
from plausiflow.persistence import store_rows, write_json_file
from plausiflow.report import ReportTable, Share, render_report
from plausiflow.search import Target
from plausiflow.tables import Encoder, IntArray

VERSION = 1
KIND, FORMAT = "plausiflow groups", 1
"""What a saved file says that it is, and the version of its format."""


class Assigner(Protocol):
    """Assigns rows to fixed actions."""

    def __call__(self, rows: pd.DataFrame, target: Target | None = None) -> GroupExplanations:
        """Return the result for other rows; without a target, that of the first call."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what is fixed, as JSON values."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GroupExplanations:
    """Few actions for many rows; actions are numbered from 1.

    Attributes:
        explanations: The verified counterfactual of each member, and a verdict for every row.
        shared: The actions on encoded rows.
        action: Number of each row's action, 0 for none, shape ``(n,)``.
        membership: Who takes which action, in words.
        limit: The most that a member may cost; infinite without a limit.
        encoder: Encoder of the table.
        assigner: Assigns other rows to the same actions.
    """

    explanations: Explanations
    shared: Actions
    action: IntArray
    membership: MembershipTree
    limit: float
    encoder: Encoder
    assigner: Assigner

    def __len__(self) -> int:
        return len(self.shared)

    def __repr__(self) -> str:
        needed, covered = int(self.explanations.is_needed.sum()), int((self.action > 0).sum())
        return f"GroupExplanations({self._count} for {covered:,} of {needed:,} rows)"

    @property
    def _count(self) -> str:
        return f"{len(self)} action{'' if len(self) == 1 else 's'}"

    @property
    def _within(self) -> str:
        """Return the limit on the cost in words; empty without one."""
        return "" if math.isinf(self.limit) else f", at a cost of at most {self.limit:.3g} each"

    def assign(self, rows: pd.DataFrame, target: Target | None = None) -> GroupExplanations:
        """Assign other rows to the same actions; a row alone gets the same action as among others.

        Args:
            rows: Rows of the table.
            target: The wanted outcome, if it is another one for each row; None for that of the first call.
        """
        return self.assigner(rows, target)

    def save(self, path: str | Path, *, rows: bool = True) -> None:
        """Write the actions to one JSON file; :meth:`Explainer.load_groups` reads it.

        The explainer is saved by itself. The same explainer, also a saved and loaded one, assigns every row
        as before.

        Args:
            path: Name of the file; a file that is there is replaced.
            rows: Whether to write the rows, too. The loaded result then has all of them again; without them
                it has none, and the file can be given to others.
        """
        body = self.assigner.describe()
        if rows:
            body |= {"rows": store_rows(self.explanations.rows), "action": self.action.tolist()}
        write_json_file(Path(path), KIND, FORMAT, body)

    @property
    def covered(self) -> float:
        """Share of the rows that need an action and have one; NaN if none needs one."""
        needed = int(self.explanations.is_needed.sum())
        return int((self.action > 0).sum()) / needed if needed else float("nan")

    @cached_property
    def actions(self) -> pd.DataFrame:
        """One line per action; the index is its number.

        ``target`` is the outcome that it leads to, ``form`` and ``what`` describe it, ``who`` describes its
        members as the tree tells them apart. ``members`` is their number and ``share`` that among the rows
        that need an action; ``cost``, ``changes``, ``probability``, ``plausible``, ``judged`` and, with
        durability, ``lasting`` are means over the members.
        """
        figures = self._figures()
        needed = max(1, int(self.explanations.is_needed.sum()))
        lines = []
        for i in range(len(self)):
            own = figures[self.action == i + 1]
            line = {
                "target": self._target(i),
                "form": FORMS[int(self.shared.form[i])],
                "what": describe_action(self.shared, i, self.encoder),
                "who": self.membership.who(i),
                "members": len(own),
                "share": len(own) / needed,
            }
            lines.append(line | {name: float(own[name].mean()) for name in figures.columns})
        index = pd.RangeIndex(1, len(self) + 1, name="action")
        return pd.DataFrame(lines, index=index)

    def _target(self, i: int) -> Any:  # noqa: ANN401
        y, labels = int(self.shared.y[i]), self.explanations.labels
        if labels:
            return labels[y]
        intervals = self.explanations.verdicts["target"].loc[self.explanations.is_needed].unique()
        return intervals[0] if len(intervals) == 1 else "a number"

    def _figures(self) -> pd.DataFrame:
        names = {"cost": "cost", "changes": "n_changes", "probability": "probability", "judged": "judged"}
        names |= {"lasting": "lasting"} if "lasting" in self.explanations.figures else {}
        columns = {name: self.explanations.found_figures(figure) for name, figure in names.items()}
        score = self.explanations.found_figures("score")
        return pd.DataFrame(columns | {"plausible": np.where(np.isnan(score), np.nan, score >= 0)})

    @cached_property
    def members(self) -> pd.DataFrame:
        """One line per row with an action: its number, the cost, and the changes that go along with it."""
        found = np.flatnonzero(self.action > 0)
        changes = self.explanations.changed
        fixed = [set(self.features_of(i)) for i in range(len(self))]
        along: dict[int, list[str]] = {int(row): [] for row in found}
        names = self.explanations.rows.columns.take(changes.column)
        for row, name in zip(self.explanations.of[changes.answer].tolist(), names, strict=True):
            if name not in fixed[self.action[row] - 1]:
                along[row].append(str(name))
        return pd.DataFrame(
            {
                "action": self.action[found],
                "cost": self.explanations.found_figures("cost")[found],
                "accompanying": [along[int(row)] for row in found],
            },
            index=self.explanations.rows.index.take(found),
        )

    def features_of(self, i: int) -> list[str]:
        """Return the features that the action at position ``i`` fixes."""
        places = self.shared.features[i].nonzero()[:, 0].tolist()
        return [self.shared.layout.blocks[j].name for j in places]

    @cached_property
    def frontier(self) -> pd.DataFrame:
        """How many rows these actions help within each limit on the cost.

        One line for each cost that a member has: ``max_cost``, ``members`` up to it, their ``share`` and
        their ``mean_cost``. Actions that are chosen for a limit may help more rows within it.
        """
        cost = np.sort(self.members["cost"].to_numpy(float))
        members = np.arange(1, len(cost) + 1)
        table = pd.DataFrame(
            {
                "max_cost": cost,
                "members": members,
                "share": members / max(1, int(self.explanations.is_needed.sum())),
                "mean_cost": np.cumsum(cost) / members,
            }
        )
        return table.drop_duplicates("max_cost", keep="last").reset_index(drop=True)

    @cached_property
    def uncovered(self) -> pd.DataFrame:
        """The rows that need an action and have none, with ``status`` and ``reason``."""
        missing = self.explanations.is_needed & (self.action == 0)
        table: pd.DataFrame = self.explanations.verdicts.loc[missing, ["status", "reason"]]
        return table

    def audit(self, by: str | Sequence[str], **settings: Any) -> Audit:  # noqa: ANN401
        """Compare groups of rows; see :meth:`Explanations.audit`."""
        return self.explanations.audit(by, **settings)

    @overload
    def to_json(self, path: None = None) -> str: ...

    @overload
    def to_json(self, path: str | Path) -> None: ...

    def to_json(self, path: str | Path | None = None) -> str | None:
        """Return strict JSON, or write it to ``path``: actions, members, and rows without an action."""
        text = json.dumps(self._json(), ensure_ascii=False, allow_nan=False)
        if path is None:
            return text
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
        return None

    def _json(self) -> dict[str, Any]:
        verdicts = self.explanations.verdicts
        labels = json_column(self.explanations.rows.index.to_flat_index())
        actions = [
            {
                "action": number,
                "features": self.features_of(number - 1),
                **{n: json_value(v) for n, v in line.items()},
            }
            for number, line in zip(self.actions.index, self.actions.to_dict("records"), strict=True)
        ]
        rows = zip(
            labels, self.action.tolist(), verdicts["status"], verdicts["reason"], strict=True
        )  # fmt: skip
        return {
            "version": VERSION,
            "outcome": self.explanations.outcome,
            "covered": json_value(self.covered),
            "limit": None if math.isinf(self.limit) else self.limit,
            "tree_accuracy": json_value(self.membership.accuracy),
            "actions": actions,
            "rows": [
                {"row": label, "action": number or None, "status": status, "reason": reason}
                for label, number, status, reason in rows
            ],
        }

    def to_frame(self, extra: pd.DataFrame | None = None, key: str | None = None) -> pd.DataFrame:
        """Return all rows with the number of their action, as ``explanations.to_frame`` does.

        Args:
            extra: More columns, with one line for each row.
            key: Name of the column that the labels of the rows come from, if they do.
        """
        extra = pd.DataFrame(index=self.explanations.rows.index) if extra is None else extra
        table = answer_table(self.explanations, extra, key)
        name = "plausiflow_action" if "action" in table else "action"
        action = pd.Series(self.action, dtype="Int64", index=table.index)
        table.insert(2, name, action.mask(action == 0))  # after the label and the rank
        return table

    def to_html(self, path: str | Path, title: str | None = None) -> None:
        """Write a report with a section about the actions; see :meth:`Explanations.to_html`."""
        content = replace(report_content(self.explanations, title), groups=self._report_tables())
        page = render_report(content)
        Path(path).write_text(page, encoding="utf-8", errors="backslashreplace", newline="\n")

    def plot(self) -> Any:  # noqa: ANN401
        """Plot how many rows each action helps, and how many have none, as a matplotlib figure.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        lines = [(f"{number}. {line['what']}", line["members"]) for number, line in self.actions.iterrows()]
        figure = plots.new_figure(8, 1.2 + 0.5 * (len(lines) + 1))
        plots.draw_counts(
            figure.subplots(),
            names=[*(name for name, _ in lines), "no action"],
            counts=[*(members for _, members in lines), len(self.uncovered)],
            title=f"{self._count} for {int(self.explanations.is_needed.sum()):,} rows",
        )
        return figure

    def _report_tables(self) -> tuple[ReportTable, ...]:
        columns = {
            "Action": "",
            "What": "words",
            "Who": "words",
            "Rows": "number",
            "Share": "",
            "Cost": "number",
        }
        lines: list[list[str | Share]] = [
            [
                str(number), line["what"], line["who"] or "–", f"{line['members']:,}",
                _share(line["share"], f"Action {number}: {line['members']:,}"),
                f"{line['cost']:.3f}" if line["members"] else "–",
            ]
            for number, line in zip(self.actions.index, self.actions.to_dict("records"), strict=True)
        ]  # fmt: skip
        counts = self.uncovered["reason"].value_counts()
        needed = max(1, int(self.explanations.is_needed.sum()))
        left: list[list[str | Share]] = [
            [
                str(reason),
                f"{count:,}",
                _share(count / needed, f"{reason}: {count:,}"),
            ]
            for reason, count in counts.items()
        ]
        return (
            ReportTable(f"Whom each action helps{self._within}", columns, lines),
            ReportTable("Rows without an action", {"Reason": "words", "Rows": "number", "Share": ""}, left),
            *self._uncovered_map(),
        )

    def _uncovered_map(self) -> list[ReportTable]:
        """Return where the rows without an action are; nothing if there are none."""
        needed = self.explanations.is_needed & (self.explanations.status["status"] != "invalid_input")
        own = np.flatnonzero(needed)
        if self.explanations.encoded is None or len(own) == 0:
            return []
        parts = map_uncovered(self.encoder, self.explanations.encoded[0][own], self.action[own] - 1)
        lines: list[list[str | Share]] = [
            [text, f"{rows:,}", _share(lack / rows, f"{text}: {lack:,} of {rows:,}")]
            for text, rows, lack in parts
        ]
        columns = {"Rows with": "words", "Rows": "number", "Without an action": ""}
        return [ReportTable("Where rows without an action are", columns, lines)] if lines else []


def _share(share: float, label: str) -> Share:
    """Return a share with its bar; the label says it in a few words."""
    return Share(f"{share:.0%}".replace("%", " %"), share, label)
