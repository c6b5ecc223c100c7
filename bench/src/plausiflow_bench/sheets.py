"""Tables of text cells, written as Markdown, LaTeX or HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

_LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "–": "--", "λ": r"$\lambda$"}


@dataclass(frozen=True)
class Cell:
    """A text, perhaps the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table.

    Attributes:
        title: What it shows.
        header: One text for each column.
        lines: The cells of each line.
        groups: How many columns on the left name the line; equal names below each other are written once.
        notes: What a reader must know, a sentence each.
    """

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[Cell, ...], ...]
    groups: int = 1
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """For a page."""
        lines = [list(self.header), ["---"] * self.groups + ["---:"] * (len(self.header) - self.groups)]
        for line in self.lines:
            lines.append([f"**{cell.text}**" if cell.best else cell.text for cell in line])
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"### {self.title}\n\n{table}\n{notes}"

    def latex(self) -> str:
        """For a paper: a tabular of the booktabs package."""
        columns = "l" * self.groups + "r" * (len(self.header) - self.groups)
        body = [_latex_line(self.header)]
        body.append(r"\midrule")
        for i, line in enumerate(self._written_once()):
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
        """For a browser: one ``table`` element, and its notes."""
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in self.header)
        rows = []
        for line in self._written_once():
            cells = [
                f"<td>{'<b>' * cell.best}{html.escape(cell.text)}{'</b>' * cell.best}</td>" for cell in line
            ]
            rows.append(f"<tr>{''.join(cells)}</tr>")
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return (
            f"<table><caption>{html.escape(self.title)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>" + (f"<ul>{notes}</ul>" if notes else "")
        )

    def _written_once(self) -> list[tuple[Cell, ...]]:
        """The lines, without names that are those of the line above."""
        written, above = [], ("",) * self.groups
        for line in self.lines:
            names = tuple(cell.text for cell in line[: self.groups])
            same = 0
            while same < self.groups - 1 and names[: same + 1] == above[: same + 1]:
                same += 1
            written.append((*(Cell(""),) * same, *line[same:]))
            above = names
        return written


def spread(values: Sequence[float], decimals: int) -> str:
    """A mean and, of several values, their standard deviation; large ones with an exponent."""
    kept = [value for value in values if math.isfinite(value)]
    if not kept:
        return "–"
    mean = sum(kept) / len(kept)
    if len(kept) == 1:
        return number(mean, decimals)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in kept) / len(kept))
    return f"{number(mean, decimals)}±{number(deviation, decimals)}"


def number(value: float, decimals: int) -> str:
    """With so many decimals, or three digits and an exponent where it is large."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1e5:
        return f"{value:.2e}"
    shown = f"{value:.{decimals}f}"
    return shown.removeprefix("-") if float(shown) == 0 else shown


def mark_best(values: Sequence[float], decimals: int, better: str) -> list[bool]:
    """Which values are the best as printed; none where there is nothing to choose from."""
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
