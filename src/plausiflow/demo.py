"""``plausiflow demo``: trains a model on loan applications, explains rejected ones, and writes a report."""

from __future__ import annotations

import warnings
from numbers import Integral
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from plausiflow.constraints import Linear
from plausiflow.datasets import loans_table
from plausiflow.densities import PlausibilityWarning
from plausiflow.errors import MissingExtraError
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow.models import MLPClassifier
from plausiflow.suggestions import suggest_rules

ROWS, TEST_ROWS, SHOWN = 1500, 200, 3


def run(
    out: Path, *, random_state: int = 0, console: Console | None = None, program: str = "plausiflow"
) -> Explanations:
    """Train an MLP on loan applications, explain rejected ones under rules, print and save the result.

    Args:
        out: Folder for the report, the saved explainer, its rows, and other files.
        random_state: Seed of the models.
        console: Console to print to; default standard output.
        program: How the user calls the command line, for the command that is printed last.
    """
    console = console or Console()
    train, test = loans_table(ROWS + 5 * TEST_ROWS).split(ROWS, 5 * TEST_ROWS)
    console.print(f"[bold]loans[/]: {ROWS} training applications, {train.x.shape[1]} features")
    suggested = suggest_rules(train.x)
    for suggestion in suggested:
        console.print(f"Proposed rule: {suggestion}", markup=False, soft_wrap=True)
    own = Linear("loan_amount <= 0.6 * income")
    console.print(f"A rule of our own: {own}", markup=False)
    explainer = Explainer(
        MLPClassifier(hidden=(64, 64), random_state=random_state),
        constraints=[*suggested.constraints, own],
        steps=suggested.steps,
        special=suggested.special,
        random_state=random_state,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PlausibilityWarning)
        explainer.fit(train.x, train.y)
    for warning in caught:
        console.print(f"Note: {warning.message}", markup=False, style="yellow")
    predicted = explainer.predict(test.x)
    console.print(f"MLP and densities trained; accuracy {float((predicted == test.y).mean()):.3f}")
    rejected = test.x[predicted == "rejected"].iloc[:TEST_ROWS]
    result = explainer.explain(rejected, target="granted")
    _print_rows(console, result)
    console.print(f"\n{result.summary()}", markup=False)
    out.mkdir(parents=True, exist_ok=True)
    _write(console, out, result, explainer, program)
    return result


def _write(console: Console, out: Path, result: Explanations, explainer: Explainer, program: str) -> None:
    """Write all files, and print what they are and how to open the what-if page."""
    result.changes.to_csv(out / "demo.csv", index=False)
    result.to_json(out / "demo.json")
    console.print(f"\nEvery change of every row: {out / 'demo.csv'} and {out / 'demo.json'}", markup=False)
    for what, name, write in (
        ("picture", "demo.png", lambda path: result.plot(0).figure.savefig(path)),
        ("report", "demo.html", result.to_html),
    ):
        try:
            write(out / name)
            console.print(f"{what.capitalize()}: {out / name}", markup=False)
        except MissingExtraError as missing:
            console.print(f"No {what}. {missing}", markup=False)
    explainer.save(out / "credit")
    result.rows.to_csv(out / "rows.csv", index=False)
    serve = f"{program} serve {out / 'credit'} --rows {out / 'rows.csv'}"
    console.print(f"What-if page, at the address that this prints:\n{serve}", markup=False, soft_wrap=True)


def _print_rows(console: Console, result: Explanations) -> None:
    """Print the first found rows, each as a small table."""
    for i in result.is_found.nonzero()[0][:SHOWN].tolist():
        found = result[i]
        probability, judged = found.figures[["probability", "judged"]].iloc[0]
        console.print(
            f"\nApplication {found.row}: rejected, would be granted (probability {probability:.2f}, "
            f"{judged:.0%} of the independent checks passed) after these changes:",
            markup=False,
        )
        table = Table("feature", *(Column(name, justify="right") for name in ("from", "to")), "needed for")
        for _, change in found.changes.iterrows():
            cells = (change[name] for name in ("feature", "from", "to", "serves"))
            table.add_row(*(f"{cell:,}" if isinstance(cell, Integral) else str(cell) for cell in cells))
        console.print(table)
        console.print(f"In words: {found.sentence}", markup=False)
