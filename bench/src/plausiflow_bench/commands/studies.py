"""``plausiflow benchmark``: the studies of the paper's data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from plausiflow_bench import densities, figures, judged, performance, published, readme, solvers, speed
from plausiflow_bench.commands.options import (
    ALL,
    Folds,
    Json,
    Models,
    Names,
    Page,
    Reference,
    Reuse,
    Rows,
    Seed,
    benchmark,
    report,
    selected,
    split,
)
from plausiflow_bench.speed_models import CLASSIFIERS, DENSITIES
from plausiflow_bench.speed_page import sections, write_page
from plausiflow_bench.speed_plan import STUDIES, SpeedSelection
from plausiflow_bench.study import read_json, write_json
from plausiflow_bench.tables import print_table


@benchmark.command("published")
def benchmark_published(
    names: Names = ALL,
    models: Models = "lr",
    folds: Folds = "0",
    seed: Seed = 0,
    rows: Rows = None,
    json: Json = None,
    page: Page = None,
    reference: Reference = None,
) -> None:
    """Both solvers on the published models, beside the published counterfactuals.

    Example: plausiflow benchmark published --datasets moons,heloc --json out/published.json
    """
    selection = selected(names, models, folds, seed, rows)
    ran = report(published.run(selection, reference), published.COLUMNS, "Published models, fold 0", json)
    if page is not None:
        published.write_page(ran, page)
        typer.echo(f"Written: {page}")


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
    selection = selected(names, models, folds, seed, rows)
    report(solvers.run(selection), solvers.COLUMNS, "Solvers on models trained here", json)


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
    selection = selected(names, models, folds, seed, rows)
    report(densities.run(selection, split(kinds)), densities.COLUMNS, "Densities, held-out rows", json)


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
    selection = selected(names, models, folds, seed, rows)
    rows_ = read_json(*reuse) if reuse else judged.run(selection)
    kept = report(rows_, judged.COLUMNS, "Judged plausibility", json)
    print_table(judged.averages(kept), judged.COLUMNS, "SearchContext over folds and classifiers")
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
    selection = selected(names, "lr", folds, seed, rows)
    performance.write(out, selection, reference, lambda title: typer.echo(f"{title}: done"))
    typer.echo(f"Page: {out}")


@benchmark.command("speed")
def benchmark_speed(
    device: Annotated[
        str, typer.Option("--device", help="cpu, cuda, or auto: CUDA where there is such a device.")
    ] = "auto",
    sizes: Annotated[
        str,
        typer.Option(
            "--sizes", help="Rows explained at once, such as 1,100; default: up to 10,000, on CUDA 1,000,000."
        ),
    ] = "",
    models: Annotated[str, typer.Option("--classifiers", help="Some of the default.")] = ",".join(
        CLASSIFIERS
    ),
    kinds: Annotated[
        str, typer.Option("--densities", help="Some of the default: one flow, the ensemble.")
    ] = ",".join(DENSITIES),
    studies: Annotated[str, typer.Option("--studies", help="Which tables.")] = ",".join(STUDIES),
    quick: Annotated[
        bool, typer.Option("--quick", help="Small models and few rows, to see that everything runs.")
    ] = False,
    threads: Annotated[int, typer.Option("--threads", help="Of torch.")] = 1,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Where models are kept, also for another machine.")
    ] = None,
    seed: Seed = 0,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Rows per second, one row's cost, what these grow with, and the ratio to the paper's solver.

    A machine without this command line runs `python -m plausiflow_bench.speed`. Example:
    plausiflow benchmark speed --device cpu --sizes 1,100 --studies batch,single
    """
    try:
        numbers = tuple(int(size) for size in split(sizes))
    except ValueError as error:
        raise typer.BadParameter(f"--sizes takes whole numbers like 1,100; got {sizes!r}") from error
    selection = SpeedSelection(
        device=device,
        sizes=numbers,
        classifiers=split(models),
        densities=split(kinds),
        studies=split(studies),
        quick=quick,
        threads=threads,
        seed=seed,
        cache=cache,
    )
    rows = read_json(*reuse) if reuse else speed.collected(speed.run(selection), json)
    console = Console(width=None if Console().is_terminal else 220)
    for text in sections(rows).values():
        console.print(Markdown(text))
    if json is not None:
        write_json(rows, json)
        typer.echo(f"Rows: {json}")
    if page is not None:
        write_page(rows, page)
        typer.echo(f"Written: {page}")


@benchmark.command("frontier")
def benchmark_frontier(
    names: Names = "heloc,digits,audit,moons,blobs",
    out: Annotated[Path, typer.Option("--out", help="Where the picture goes.")] = Path("out/frontier.png"),
    seed: Seed = 0,
    rows: Rows = None,
) -> None:
    """Draw distance against judged plausibility as the margin grows, for each data set."""
    selection = selected(names, "lr", "0", seed, rows)
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


@benchmark.command("readme")
def benchmark_readme(
    pages: Annotated[
        list[Path] | None,
        typer.Option("--page", help="A page to write; default: README.md and docs/comparison.md."),
    ] = None,
    docs: Annotated[Path, typer.Option("--docs", help="Folder of the pages that are read.")] = Path("docs"),
) -> None:
    """Put figures of the generated pages into the README and the comparison. Nothing is run.

    Example: plausiflow benchmark readme --page README.md
    """
    for page in pages or readme.PAGES:
        sections = readme.write_page(page, docs)
        typer.echo(f"Written: {page} ({', '.join(sections)})")
