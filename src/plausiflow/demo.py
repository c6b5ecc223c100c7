"""``plausiflow demo``: trains a model on loan applications and explains rejected ones, in a minute."""

from __future__ import annotations

import warnings
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from plausiflow.constraints import Immutable, Increasing, Linear, Rule
from plausiflow.datasets import loans_table
from plausiflow.densities import PlausibilityWarning
from plausiflow.errors import MissingExtraError
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow.models import MLPClassifier

ROWS, TEST_ROWS, SHOWN = 1500, 200, 3


def run(out: Path, *, random_state: int = 0, console: Console | None = None) -> Explanations:
    """Train an MLP on loan applications, explain rejected ones under rules, print and save the result.

    Args:
        out: Folder for ``demo.csv``, ``demo.json`` and ``demo.png``.
        random_state: Seed of the models.
        console: Console to print to; default standard output.
    """
    console = console or Console()
    train, test = loans_table(ROWS + 5 * TEST_ROWS).split(ROWS, 5 * TEST_ROWS)
    rules: list[Rule] = [
        Immutable("age", "sex"),
        Increasing("education"),
        Increasing("years_employed"),
        Linear("loan_amount <= 0.6 * income"),
    ]
    console.print(f"[bold]loans[/]: {ROWS} training applications, {train.x.shape[1]} features")
    for rule in rules:
        console.print(f"Rule: {rule}", markup=False)
    explainer = Explainer(
        MLPClassifier(hidden=(64, 64), random_state=random_state),
        constraints=rules,
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
    result.changes.to_csv(out / "demo.csv", index=False)
    result.to_json(out / "demo.json")
    console.print(f"Every change of every row: {out / 'demo.csv'} and {out / 'demo.json'}", markup=False)
    try:
        result.plot(0).savefig(out / "demo.png")
        console.print(f"Picture: {out / 'demo.png'}", markup=False)
    except MissingExtraError as missing:
        console.print(f"No picture. {missing}", markup=False)
    return result


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
        table = Table("feature", Column("from", justify="right"), Column("to", justify="right"))
        for _, change in found.changes.iterrows():
            table.add_row(str(change["feature"]), str(change["from"]), str(change["to"]))
        console.print(table)
        console.print(f"In words: {found.sentence}", markup=False)
