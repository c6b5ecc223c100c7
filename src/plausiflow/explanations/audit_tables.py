"""The tables of an audit in a report: groups, their differences from all other rows, and matched rows."""

from __future__ import annotations

import pandas as pd

from plausiflow.explanations.audit import MEASURE_NAMES as NAMES
from plausiflow.explanations.audit import Audit
from plausiflow.report import ReportTable, Share, format_number, format_share

LEVEL = 0.05
SHARES = ("found", "lasting")


def audit_tables(audit: Audit) -> tuple[ReportTable, ...]:
    """Return the tables of an audit; shares are in per cent, and clear differences are named."""
    settings = audit.settings
    tests = (
        f"permutation tests, adjusted for all lines; intervals at {format_share(settings.confidence)}; "
        f"groups of fewer than {settings.min_size} rows are not tested"
    )
    return (_groups(audit.groups), _differences(audit.differences, tests), _matched(audit.matched))


def _groups(groups: pd.DataFrame) -> ReportTable:
    measures = [name for name in NAMES if name in groups]
    columns = {"Group": "", "Rows": "number", "Need an answer": "number"}
    columns |= {NAMES[name][0].upper() + NAMES[name][1:]: "number" for name in measures}
    rows: list[list[str | Share]] = [
        [str(label), f"{line['rows']:,.0f}", f"{line['needed']:,.0f}",
         *(_text(name, float(line[name])) for name in measures)]
        for label, line in groups.iterrows()
    ]  # fmt: skip
    return ReportTable("Groups of rows, means", columns, rows)


def _differences(table: pd.DataFrame, tests: str) -> ReportTable:
    columns = {"Group": "", "Measure": ""}
    columns |= dict.fromkeys(
        ("Group's mean", "Others' mean", "Difference", "Interval", "p, adjusted"), "number"
    )
    rows: list[list[str | Share]] = []
    for label, line in table.iterrows():
        group, measure = (str(part) for part in label)  # type: ignore[attr-defined]
        values = [_text(measure, float(line[name])) for name in ("mean", "others", "difference")]
        rows.append([group, NAMES.get(measure, measure), *values, _interval(measure, line), _p_value(line)])
    return ReportTable(
        f"Differences from all other rows ({tests})", columns | {"More than chance": ""}, _marked(rows, table)
    )


def _matched(table: pd.DataFrame) -> ReportTable:
    columns = {"Group": "", "Pairs": "number", "Difference of the cost": "number", "Interval": "number"}
    rows: list[list[str | Share]] = [
        [str(group), f"{line['pairs']:,.0f}", _text("cost", float(line["difference"])),
         _interval("cost", line), _p_value(line)]
        for group, line in table.iterrows()
    ]  # fmt: skip
    columns |= {"p, adjusted": "number", "More than chance": ""}
    return ReportTable("Matched rows: pairs that hardly differ otherwise", columns, _marked(rows, table))


def _marked(rows: list[list[str | Share]], table: pd.DataFrame) -> list[list[str | Share]]:
    """Return the rows with a last cell that says whether the difference is more than chance."""
    small = (table["p_adjusted"] <= LEVEL).tolist() if len(table) else []
    return [[*row, "yes" if clear else "no"] for row, clear in zip(rows, small, strict=True)]


def _interval(measure: str, line: pd.Series) -> str:
    return f"{_text(measure, float(line['low']))} to {_text(measure, float(line['high']))}"


def _p_value(line: pd.Series) -> str:
    p = float(line["p_adjusted"])
    return f"{p:.3f}" if p >= 0.001 else "below 0.001"


def _text(measure: str, value: float) -> str:
    return format_share(value) if measure in SHARES else format_number(value)
