"""``plausiflow benchmark``: the studies on numeric data sets, speed, figures and the README."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from plausiflow_bench import readme
from plausiflow_bench.commands.options import (
    ALL_DATASETS,
    Folds,
    Json,
    Models,
    Names,
    Page,
    ReferenceFolder,
    Reuse,
    Rows,
    Seed,
    benchmark,
    make_selection,
    report,
    split_names,
)
from plausiflow_bench.harness.printing import print_table
from plausiflow_bench.harness.rows import read_json, write_json
from plausiflow_bench.numeric import densities, figures, judged, performance, solvers
from plausiflow_bench.numeric import fresh as fresh_judges
from plausiflow_bench.published import study as published
from plausiflow_bench.speed import study as speed
from plausiflow_bench.speed.models import CLASSIFIERS, DENSITIES
from plausiflow_bench.speed.page import sections, write_page
from plausiflow_bench.speed.plan import STUDIES, SpeedSelection


@benchmark.command("published")
def benchmark_published(
    names: Names = ALL_DATASETS,
    models: Models = "lr",
    folds: Folds = "0",
    seed: Seed = 0,
    rows: Rows = None,
    json: Json = None,
    page: Page = None,
    reference: ReferenceFolder = None,
) -> None:
    """Both solvers on the published models, beside the published counterfactuals.

    Example: plausiflow benchmark published --datasets moons,heloc --json out/published.json
    """
    selection = make_selection(names, models, folds, seed, rows)
    ran = report(published.run(selection, reference), published.COLUMNS, "Published models, fold 0", json)
    if page is not None:
        published.write_page(ran, page)
        typer.echo(f"Written: {page}")


@benchmark.command("solvers")
def benchmark_solvers(
    names: Names = ALL_DATASETS,
    models: Models = "lr,mlp",
    folds: Folds = "0",
    seed: Seed = 0,
    rows: Rows = None,
    json: Json = None,
) -> None:
    """The SQP and the paper's Adam on models trained here: feasibility, distances, gradients, processor time.

    Example: plausiflow benchmark solvers --datasets wine,law --classifiers mlp
    """
    selection = make_selection(names, models, folds, seed, rows)
    report(solvers.run(selection), solvers.COLUMNS, "Solvers on models trained here", json)


@benchmark.command("densities")
def benchmark_densities(
    names: Names = ALL_DATASETS,
    models: Annotated[
        str,
        typer.Option("--classifiers", help="Not used; accepted as in other studies."),
    ] = "lr",
    folds: Folds = "0",
    seed: Seed = 0,
    rows: Rows = None,
    json: Json = None,
    kinds: Annotated[str, typer.Option("--densities", help="Densities, separated by commas.")] = ",".join(
        densities.DENSITIES
    ),
) -> None:
    """How well each density fits held-out rows, and the cost of training and evaluating it.

    Example: plausiflow benchmark densities --datasets heloc,digits --densities maf,nsf
    """
    selection = make_selection(names, models, folds, seed, rows)
    report(densities.run(selection, split_names(kinds)), densities.COLUMNS, "Densities, held-out rows", json)


@benchmark.command("judged")
def benchmark_judged(
    names: Names = ALL_DATASETS,
    models: Models = "lr,mlp",
    folds: Folds = "0,1",
    seed: Seed = 0,
    rows: Rows = None,
    json: Json = None,
    page: Annotated[Path | None, typer.Option("--page", help="Also write the means into this page.")] = None,
    reuse: Annotated[
        list[Path] | None, typer.Option("--reuse", help="Use the rows of earlier runs instead of a new run.")
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Only the default and the paper's solver, before six judges with fresh seeds."
        ),
    ] = False,
) -> None:
    """Judged plausibility: flows that guided no search judge the counterfactuals of every method.

    Example: plausiflow benchmark judged --datasets law,wine --classifiers lr --folds 0
    """
    selection = make_selection(names, models, folds, seed, rows)
    if fresh:
        cases = read_json(*reuse) if reuse else fresh_judges.run(selection)
        kept = report(cases, fresh_judges.COLUMNS, "Six fresh judges", json)
        print_table(fresh_judges.average_rows(kept), fresh_judges.COLUMNS, "Means over folds and classifiers")
        if page is not None:
            fresh_judges.write_page(kept, page)
        return
    rows_ = read_json(*reuse) if reuse else judged.run(selection)
    kept = report(rows_, judged.COLUMNS, "Judged plausibility", json)
    print_table(judged.average_rows(kept), judged.COLUMNS, "Means over folds and classifiers")
    if page is not None:
        judged.write_page(kept, page)


@benchmark.command("performance")
def benchmark_performance(
    out: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("docs/performance.md"),
    names: Names = ALL_DATASETS,
    folds: Folds = "0",
    seed: Seed = 0,
    rows: Rows = None,
    reference: ReferenceFolder = None,
) -> None:
    """All studies of speed and closeness (about half an hour), written as a page."""
    selection = make_selection(names, "lr", folds, seed, rows)
    performance.write(out, selection, reference, lambda title: typer.echo(f"{title}: done"))
    typer.echo(f"Page: {out}")


@benchmark.command("speed")
def benchmark_speed(
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: CUDA if available.")] = "auto",
    sizes: Annotated[
        str,
        typer.Option("--sizes", help="Batch sizes, such as 1,100; default: up to 10,000, on CUDA 1,000,000."),
    ] = "",
    models: Annotated[
        str, typer.Option("--classifiers", help="Classifiers, separated by commas.")
    ] = ",".join(CLASSIFIERS),
    kinds: Annotated[str, typer.Option("--densities", help="Densities: one flow, the ensemble.")] = ",".join(
        DENSITIES
    ),
    studies: Annotated[str, typer.Option("--studies", help="Tables, separated by commas.")] = ",".join(
        STUDIES
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Small models and few rows, to check that everything runs.")
    ] = False,
    threads: Annotated[int, typer.Option("--threads", help="Threads of torch.")] = 1,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Folder of trained models, which another machine can use.")
    ] = None,
    seed: Seed = 0,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Rows per second, the latency of one row, how these scale, and the ratio to the paper's solver.

    Without this command line, run `python -m plausiflow_bench.speed`. Example:
    plausiflow benchmark speed --device cpu --sizes 1,100 --studies batch,single
    """
    try:
        numbers = tuple(int(size) for size in split_names(sizes))
    except ValueError as error:
        raise typer.BadParameter(f"--sizes takes whole numbers such as 1,100; got {sizes!r}") from error
    selection = SpeedSelection(
        device=device,
        sizes=numbers,
        classifiers=split_names(models),
        densities=split_names(kinds),
        studies=split_names(studies),
        quick=quick,
        threads=threads,
        seed=seed,
        cache=cache,
    )
    rows = read_json(*reuse) if reuse else speed.collect_rows(speed.run(selection), json)
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
    out: Annotated[Path, typer.Option("--out", help="The file of the picture.")] = Path("out/frontier.png"),
    seed: Seed = 0,
    rows: Rows = None,
) -> None:
    """Draw distance against judged plausibility as the margin grows, for each data set."""
    selection = make_selection(names, "lr", "0", seed, rows)
    figures.frontier(out, selection)
    typer.echo(f"Picture: {out}")


@benchmark.command("figure1")
def benchmark_figure1(
    out: Annotated[Path, typer.Option("--out", help="The file of the picture.")] = Path("out/figure1.png"),
    seed: Seed = 0,
) -> None:
    """Draw the paper's figure 1 for both solvers: density, decision boundary and search path on moons."""
    figures.figure_1(out, seed=seed)
    typer.echo(f"Picture: {out}")


@benchmark.command("readme")
def benchmark_readme(
    pages: Annotated[
        list[Path] | None,
        typer.Option("--page", help="A page to write; default: README.md and docs/comparison.md."),
    ] = None,
    docs: Annotated[Path, typer.Option("--docs", help="Folder of the pages to read.")] = Path("docs"),
) -> None:
    """Copy figures of the generated pages into the README and the comparison. Nothing is run.

    Example: plausiflow benchmark readme --page README.md
    """
    for page in pages or readme.PAGES:
        sections = readme.write_page(page, docs)
        typer.echo(f"Written: {page} ({', '.join(sections)})")
