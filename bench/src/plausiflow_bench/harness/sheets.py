"""Tables of text cells, written as Markdown, LaTeX or HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

_LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "–": "--", "λ": r"$\lambda$"}


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: The content.
        best: Whether it is the best value of its column.
    """

    text: str
    best: bool = False


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table of text cells.

    Attributes:
        title: The title.
        header: The heading of each column.
        lines: The cells of each line.
        groups: The number of columns on the left that name a line. Repeated names are printed once.
        notes: Remarks below the table, one sentence each.
    """

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[Cell, ...], ...]
    groups: int = 1
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Return the table and its notes as Markdown."""
        lines = [list(self.header), ["---"] * self.groups + ["---:"] * (len(self.header) - self.groups)]
        for line in self.lines:
            lines.append([f"**{cell.text}**" if cell.best else cell.text for cell in line])
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"### {self.title}\n\n{table}\n{notes}"

    def latex(self) -> str:
        """Return the table as a LaTeX tabular that uses the booktabs package."""
        columns = "l" * self.groups + "r" * (len(self.header) - self.groups)
        body = [_latex_line(self.header)]
        body.append(r"\midrule")
        for i, line in enumerate(self._without_repeats()):
            if i and line[0].text:
                body.append(r"\midrule")
            body.append(
                " & ".join(rf"\textbf{{{_latex(c.text)}}}" if c.best else _latex(c.text) for c in line)
                + r" \\"
            )
        inside = "\n".join([r"\toprule", *body, r"\bottomrule"])
        notes = "".join(f"% {note}\n" for note in self.notes)
        return f"% {self.title}\n{notes}\\begin{{tabular}}{{{columns}}}\n{inside}\n\\end{{tabular}}\n"

    def html(self) -> str:
        """Return the table as an HTML ``table`` element, followed by its notes."""
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in self.header)
        rows = []
        for line in self._without_repeats():
            cells = [
                f"<td>{'<b>' * cell.best}{html.escape(cell.text)}{'</b>' * cell.best}</td>" for cell in line
            ]
            rows.append(f"<tr>{''.join(cells)}</tr>")
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return (
            f"<table><caption>{html.escape(self.title)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>" + (f"<ul>{notes}</ul>" if notes else "")
        )

    def _without_repeats(self) -> list[tuple[Cell, ...]]:
        """Return the lines with repeated names of groups left empty."""
        written, above = [], ("",) * self.groups
        for line in self.lines:
            names = tuple(cell.text for cell in line[: self.groups])
            same = 0
            while same < self.groups - 1 and names[: same + 1] == above[: same + 1]:
                same += 1
            written.append((*(Cell(""),) * same, *line[same:]))
            above = names
        return written


def mean_and_std(values: Sequence[float], decimals: int) -> str:
    """Return the mean as text and, for several values, their standard deviation."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return "–"
    mean = sum(finite) / len(finite)
    if len(finite) == 1:
        return format_number(mean, decimals)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in finite) / len(finite))
    return f"{format_number(mean, decimals)}±{format_number(deviation, decimals)}"


def format_number(value: float, decimals: int) -> str:
    """Return a number as text: with fixed decimals, or with an exponent from 100,000, or a dash for NaN."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1e5:
        return f"{value:.2e}"
    shown = f"{value:.{decimals}f}"
    return shown.removeprefix("-") if float(shown) == 0 else shown


def mark_best(values: Sequence[float], decimals: int, better: str) -> list[bool]:
    """Return a mask of the best values as printed; all False for fewer than two finite values."""
    printed = [round(value, decimals) if math.isfinite(value) else None for value in values]
    known = [value for value in printed if value is not None]
    if len(known) < 2:
        return [False] * len(values)
    best = max(known) if better == "higher" else min(known)
    return [value == best for value in printed]


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _latex_line(texts: Sequence[str]) -> str:
    return " & ".join(map(_latex, texts)) + r" \\"
