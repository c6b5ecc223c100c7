"""The command line: ``plausiflow demo``, ``plausiflow datasets``, ``plausiflow benchmark ...``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from plausiflow.benchmark import densities, figures, judged, performance, published, solvers
from plausiflow.benchmark.study import PAPER_DATASETS, Row, Selection, read_json, write_json
from plausiflow.benchmark.tables import print_table
from plausiflow.data import catalog
from plausiflow.demo import run as run_demo
from plausiflow.errors import PlausiflowError


class _Commands(typer.core.TyperGroup):
    """Shows our own errors as one line with their remedy, not as a trace."""

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except PlausiflowError as error:
            if ctx.params.get("debug"):
                raise
            typer.secho(f"plausiflow: {error}", err=True, fg=typer.colors.RED)
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    help="Counterfactual explanations that could be real: the closest row that a model decides otherwise, "
    "and that is dense under a normalizing flow of the data.\n\nStart with: plausiflow demo",
    pretty_exceptions_enable=False,
)
benchmark = typer.Typer(no_args_is_help=True, help="Measure: solvers, densities, and the published runs.")
app.add_typer(benchmark, name="benchmark")

Names = Annotated[
    str, typer.Option("--datasets", help="Data sets, separated by commas; `plausiflow datasets` lists them.")
]
Models = Annotated[str, typer.Option("--classifiers", help="lr, mlp, node, separated by commas.")]
Folds = Annotated[str, typer.Option("--folds", help="Folds of the paper's five, for example 0,1.")]
Seed = Annotated[int, typer.Option("--seed", help="Of every model that is trained.")]
Rows = Annotated[int | None, typer.Option("--rows", help="Most test rows of each case; all if not given.")]
Reference = Annotated[
    Path | None,
    typer.Option("--reference", help="Folder of the published runs; default: $PLAUSIFLOW_REFERENCE."),
]
Json = Annotated[
    Path | None, typer.Option("--json", help="Also write the rows to this file, a list of flat objects.")
]

ALL = ",".join(PAPER_DATASETS)


@app.callback()
def main(
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")] = False,
) -> None:
    """Counterfactual explanations that could be real."""
    # Small batches: a second thread would mostly spin, and be counted where processor seconds are compared.
    torch.set_num_threads(1)
    # Files beside a checkout need no settings; the environment's own word comes first.
    for variable, folder in (("PLAUSIFLOW_DATA", "data"), ("PLAUSIFLOW_REFERENCE", "reference")):
        beside = Path("..") / "shared" / folder
        if variable not in os.environ and beside.is_dir():
            os.environ[variable] = str(beside.resolve())


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the CSV file and the picture.")] = Path(
        "out"
    ),
    seed: Seed = 0,
) -> None:
    """Explain a bundled example.

    Train a model and a flow, find a counterfactual for every test row, print what changes.
    """
    run_demo(out, seed=seed)


@app.command()
def datasets() -> None:
    """List the data sets: their size, where they come from, and whether they are on this machine."""
    frame = catalog.describe()
    table = Table(title="Data sets", title_justify="left")
    shown = [str(column) for column in frame.columns if column != "source"]
    for column in shown:
        table.add_column(column, no_wrap=column == "name", overflow="fold")
    for values in frame[shown].itertuples(index=False):
        table.add_row(
            *("yes" if value is True else "no" if value is False else str(value) for value in values)
        )
    console = Console()
    console.print(table)
    for name, source in zip(frame["name"], frame["source"], strict=True):
        console.print(f"{name}: {source}", markup=False, highlight=False)


@benchmark.command("published")
def benchmark_published(
    names: Names = ALL,
    models: Models = "lr",
    folds: Folds = "0",
    seed: Seed = 0,
    rows: Rows = None,
    json: Json = None,
    reference: Reference = None,
) -> None:
    """Both solvers on the published models, beside the published counterfactuals.

    Example: plausiflow benchmark published --datasets moons,heloc --json out/published.json
    """
    selection = _selection(names, models, folds, seed, rows)
    _report(published.run(selection, reference), published.COLUMNS, "Published models, fold 0", json)


@benchmark.command("solvers")
def benchmark_solvers(
    names: Names = ALL,
    models: Models = "lr,mlp",
    folds: Folds = "0",
    seed: Seed = 0,
    rows: Rows = None,
    json: Json = None,
) -> None:
    """The SQP and the paper's Adam on models trained here: feasible, distances, gradients, processor seconds.

    Example: plausiflow benchmark solvers --datasets wine,law --classifiers mlp
    """
    selection = _selection(names, models, folds, seed, rows)
    _report(solvers.run(selection), solvers.COLUMNS, "Solvers on models trained here", json)


@benchmark.command("densities")
def benchmark_densities(
    names: Names = ALL,
    models: Annotated[
        str,
        typer.Option(
            "--classifiers", help="Not used: densities know no classifier. Accepted like everywhere."
        ),
    ] = "lr",
    folds: Folds = "0",
    seed: Seed = 0,
    rows: Rows = None,
    json: Json = None,
    kinds: Annotated[str, typer.Option("--densities", help="Which, separated by commas.")] = ",".join(
        densities.DENSITIES
    ),
) -> None:
    """How well each density fits rows it has not seen, what training and evaluating it costs.

    Example: plausiflow benchmark densities --datasets heloc,digits --densities maf,nsf
    """
    selection = _selection(names, models, folds, seed, rows)
    _report(densities.run(selection, _split(kinds)), densities.COLUMNS, "Densities, held-out rows", json)


@benchmark.command("judged")
def benchmark_judged(
    names: Names = ALL,
    models: Models = "lr,mlp",
    folds: Folds = "0,1",
    seed: Seed = 0,
    rows: Rows = None,
    json: Json = None,
    page: Annotated[Path | None, typer.Option("--page", help="Put the means into this page, too.")] = None,
    reuse: Annotated[
        list[Path] | None, typer.Option("--reuse", help="Rows of earlier runs, instead of a new one.")
    ] = None,
) -> None:
    """Does plausibility survive a second opinion? Flows that guided no search judge every method's answers.

    Example: plausiflow benchmark judged --datasets law,wine --classifiers lr --folds 0
    """
    selection = _selection(names, models, folds, seed, rows)
    rows_ = read_json(*reuse) if reuse else judged.run(selection)
    kept = _report(rows_, judged.COLUMNS, "Judged plausibility", json)
    print_table(judged.averages(kept), judged.COLUMNS, "Means over folds and classifiers")
    if page is not None:
        judged.write_page(kept, page)


@benchmark.command("performance")
def benchmark_performance(
    out: Annotated[Path, typer.Option("--out", help="The page that is written.")] = Path(
        "docs/performance.md"
    ),
    names: Names = ALL,
    folds: Folds = "0",
    seed: Seed = 0,
    rows: Rows = None,
    reference: Reference = None,
) -> None:
    """Every study of speed and closeness in one go (about half an hour), written as a page."""
    selection = _selection(names, "lr", folds, seed, rows)
    performance.write(out, selection, reference, lambda title: typer.echo(f"{title}: done"))
    typer.echo(f"Page: {out}")


@benchmark.command("frontier")
def benchmark_frontier(
    names: Names = "heloc,digits,audit,moons,blobs",
    out: Annotated[Path, typer.Option("--out", help="Where the picture goes.")] = Path("out/frontier.png"),
    seed: Seed = 0,
    rows: Rows = None,
) -> None:
    """Draw distance against judged plausibility as the margin grows, for each data set."""
    selection = _selection(names, "lr", "0", seed, rows)
    figures.frontier(out, selection)
    typer.echo(f"Picture: {out}")


@benchmark.command("figure1")
def benchmark_figure1(
    out: Annotated[Path, typer.Option("--out", help="Where the picture goes.")] = Path("out/figure1.png"),
    seed: Seed = 0,
) -> None:
    """Draw the paper's figure 1 for both solvers: density, decision line and path of the search on moons."""
    figures.figure_1(out, seed=seed)
    typer.echo(f"Picture: {out}")


def _selection(names: str, models: str, folds: str, seed: int, rows: int | None) -> Selection:
    try:
        numbers = tuple(int(fold) for fold in _split(folds))
    except ValueError as error:
        raise typer.BadParameter(f"--folds takes whole numbers like 0,1; got {folds!r}") from error
    if not _split(names):
        raise typer.BadParameter("--datasets names none; `plausiflow datasets` lists them")
    return Selection(datasets=_split(names), classifiers=_split(models), folds=numbers, seed=seed, rows=rows)


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _report(rows: Iterable[Row], columns: Sequence[str], title: str, json: Path | None) -> list[Row]:
    kept = []
    for row in rows:
        kept.append(row)
        if sys.stderr.isatty():
            named = [
                str(row[name])
                for name in ("dataset", "classifier", "fold", "solver", "method")
                if name in row
            ]
            typer.echo(f"done: {' '.join(named)}", err=True)
    print_table(kept, columns, title)
    if json is not None:
        write_json(kept, json)
        typer.echo(f"Rows: {json}")
    return kept
