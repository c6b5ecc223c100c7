"""``plausiflow demo``: one bundled data set from training to a table of changes, in under two minutes."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from plausiflow.classifiers import MLPClassifier, predict, predict_proba
from plausiflow.counterfactuals import Counterfactuals
from plausiflow.data import Fold, load
from plausiflow.errors import MissingExtraError
from plausiflow.methods import PPCEF
from plausiflow.metrics import METRICS, Context, evaluate
from plausiflow.plots import draw_changes
from plausiflow.search.calibration import PlausibilityWarning
from plausiflow.search.judges import Judges

SHOWN_ROWS, SHOWN_FEATURES = 3, 6


def run(out: Path, *, seed: int = 0, console: Console | None = None) -> Counterfactuals:
    """Train an MLP and flows on breast_cancer, explain every test row, print and save what was found.

    Args:
        out: Folder for ``demo.csv`` and ``demo.png``.
        seed: Of the models.
        console: Where to print.
    """
    console = console or Console()
    data = load("breast_cancer")
    fold = data.fold(0)
    console.print(
        f"[bold]{data.name}[/]: {len(data.x)} rows, {data.x.shape[1]} features, classes "
        f"{', '.join(data.class_names)}"
    )
    model = MLPClassifier(seed=seed).fit(fold.x_train, fold.y_train)
    accuracy = float((predict(model, fold.x_test) == fold.y_test).double().mean())
    console.print(f"MLP trained; accuracy on {len(fold.x_test)} test rows {accuracy:.3f}")
    method = PPCEF(classifier=model, lower=0.0, upper=1.0, seed=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PlausibilityWarning)
        method.fit(fold.x_train, fold.y_train)
    console.print("Ensemble of flows trained; a row is plausible if it is denser than half of its class")
    for warning in caught:
        console.print(f"Note: {warning.message}", markup=False, style="yellow")
    found = method.explain(fold.x_test, "opposite")
    judges = Judges().fit(fold.x_train, fold.y_train)

    _print_changes(console, found, fold, predict_proba(model, found.x_cf.nan_to_num()))
    context = Context(
        classifier=model,
        plausibility=method.scored_by(),
        x_train=fold.x_train,
        y_train=fold.y_train,
        judges=judges,
    )
    _print_metrics(console, evaluate(found, context))
    out.mkdir(parents=True, exist_ok=True)
    changes_table(found, fold).to_csv(out / "demo.csv", index=False)
    console.print(f"Every change of every row: {out / 'demo.csv'}", markup=False)
    try:
        draw_changes(found, fold.feature_names, fold.class_names).savefig(out / "demo.png")
        console.print(f"Picture: {out / 'demo.png'}", markup=False)
    except MissingExtraError as missing:
        console.print(f"No picture: {missing}", markup=False)
    return found


def changes_table(found: Counterfactuals, fold: Fold) -> pd.DataFrame:
    """One line for every feature of every row that changed.

    It has row, feature, from, to, in original units, and the verdicts.
    """
    before, after = fold.to_original(found.x.double()), fold.to_original(found.x_cf.double())
    moved = ((found.x_cf - found.x).abs() > 1e-4) & found.found[:, None]
    rows, columns = moved.nonzero(as_tuple=True)
    return pd.DataFrame(
        {
            "row": fold.rows_test[rows].numpy(),
            "feature": [fold.feature_names[j] for j in columns.tolist()],
            "from": before[rows, columns].numpy(),
            "to": after[rows, columns].numpy(),
            "decision": [fold.class_names[k] for k in found.y[rows].tolist()],
            "wanted": [fold.class_names[k] for k in found.y_target[rows].tolist()],
            "valid": found.valid[rows].numpy(),
            "plausible": found.plausible[rows].numpy(),
        }
    )


def _print_changes(console: Console, found: Counterfactuals, fold: Fold, proba: torch.Tensor) -> None:
    before, after = fold.to_original(found.x.double()), fold.to_original(found.x_cf.double())
    for i in range(min(SHOWN_ROWS, len(found))):
        decided, wanted = fold.class_names[int(found.y[i])], fold.class_names[int(found.y_target[i])]
        certain = float(proba[i, found.y_target[i]])
        above = float(found.log_prob[i] - found.log_delta[i])
        title = (
            f"Row {int(fold.rows_test[i])}: decided {decided}, would be {wanted} (probability {certain:.2f}, "
            f"{above:.2f} nats above the density threshold) if"
        )
        table = Table(title=title, title_justify="left")
        for name in ("feature", "is", "were", "change, share of range"):
            table.add_column(name, justify="left" if name == "feature" else "right")
        change = (found.x_cf - found.x)[i]
        for j in change.abs().argsort(descending=True)[:SHOWN_FEATURES].tolist():
            table.add_row(
                fold.feature_names[j], f"{before[i, j]:.4g}", f"{after[i, j]:.4g}", f"{change[j]:+.3f}"
            )
        rest = int((change.abs() > 1e-4).sum()) - SHOWN_FEATURES
        if rest > 0:
            table.caption = f"and {rest} smaller changes, see the CSV file"
        console.print(table)


def _print_metrics(console: Console, values: dict[str, float]) -> None:
    table = Table(title="All test rows", title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in values.items():
        table.add_row(METRICS["sound"][name].label, f"{value:.3f}")
    console.print(table)
