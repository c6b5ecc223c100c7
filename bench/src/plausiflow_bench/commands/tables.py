"""``plausiflow benchmark``: the studies on mixed tables, models without gradients and the service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from plausiflow_bench.commands.options import (
    Json,
    Names,
    Page,
    Reuse,
    Seed,
    TableRows,
    TrainingRows,
    benchmark,
    run_study,
    split_names,
)
from plausiflow_bench.harness import runner
from plausiflow_bench.harness.printing import print_table
from plausiflow_bench.harness.rows import write_json
from plausiflow_bench.models import trees as models
from plausiflow_bench.realism import exact as exact_density
from plausiflow_bench.realism import study as realism
from plausiflow_bench.serving import study as serving
from plausiflow_bench.tables import durable, durable_page, exact, labels, mixed, peers, sparsity
from plausiflow_bench.tables.cases import DEFAULT_TABLES, TableSelection

TABLES, SPARSE_TABLES, PEER_TABLES, PEERS = (
    ",".join(names)
    for names in (DEFAULT_TABLES, sparsity.DEFAULT_TABLES, peers.DEFAULT_TABLES, peers.METHODS)
)
REALISM_TABLES = ",".join(realism.TABLES)
EXACT_TABLES = ",".join(exact.DEFAULT_TABLES)
DURABLE_TABLES = ",".join(durable.DEFAULT_TABLES)
SCARCE_TABLES = ",".join(labels.DEFAULT_TABLES)
MODEL_TABLES, NUMBERS, MODELS = (",".join(names) for names in (models.TABLES, models.NUMBERS, models.MODELS))


@benchmark.command("tables")
def benchmark_tables(
    names: Names = TABLES,
    seed: Seed = 0,
    rows: TableRows = None,
    train: TrainingRows = None,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Rows of mixed tables: share found, by group, judged plausibility and cost.

    Example: plausiflow benchmark tables --datasets loans --rows 100 --train 1000
    """
    selection = TableSelection(tables=split_names(names), rows=rows, train=train, seed=seed)
    run_study(
        mixed.run(selection), mixed.COLUMNS, "Mixed tables",
        json=json, reuse=reuse, page=page, write_page=mixed.write_page,
    )  # fmt: skip


@benchmark.command("sparsity")
def benchmark_sparsity(
    names: Names = SPARSE_TABLES,
    seed: Seed = 0,
    rows: TableRows = sparsity.ROWS,
    train: TrainingRows = None,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
    python: Annotated[
        Path | None, typer.Option("--python", help="The interpreter that has NICE; default: without NICE.")
    ] = None,
) -> None:
    """The cost of fewer changes, and the diversity of several counterfactuals.

    Example: plausiflow benchmark sparsity --datasets loans --rows 50 --train 1000
    """
    others = None if python is None else peers.PeerSettings(python=python, methods=(sparsity.NICE,))
    selection = sparsity.SparsitySelection(
        tables=split_names(names), rows=rows, train=train, seed=seed, peers=others
    )
    run_study(
        sparsity.run(selection), sparsity.COLUMNS, "Fewer changes, several answers",
        json=json, reuse=reuse, page=page, write_page=sparsity.write_page,
    )  # fmt: skip


@benchmark.command("durable")
def benchmark_durable(
    names: Names = DURABLE_TABLES,
    models: Annotated[str, typer.Option("--models", help="Models, separated by commas.")] = ",".join(
        durable.MODELS
    ),
    unseen: Annotated[
        int, typer.Option("--unseen", help="Retrained models that judge the answers.")
    ] = durable.UNSEEN,
    methods: Annotated[
        str, typer.Option("--methods", help="Methods, separated by commas, beside the default.")
    ] = ",".join(durable.METHODS),
    draws: Annotated[int, typer.Option("--draws", help="How often guides are drawn.")] = durable.DRAWS,
    first_draw: Annotated[int, typer.Option("--first-draw", help="The number of the first draw.")] = 0,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Share of answers that must last.")
    ] = durable.CONFIDENCE,
    seed: Seed = 0,
    rows: TableRows = durable.ROWS,
    train: TrainingRows = durable.TRAINING,
    json: Json = None,
    page: Page = None,
    figure: Annotated[Path | None, typer.Option("--figure", help="Draw survival against cost here.")] = None,
    reuse: Reuse = None,
) -> None:
    """How many counterfactuals survive when the model is trained again.

    Cases, draws and methods can be run one by one, and put together with --reuse.
    Example: plausiflow benchmark durable --datasets loans --models lr --rows 20 --train 300
    """
    selection = durable.DurableSelection(
        tables=split_names(names),
        models=split_names(models),
        unseen=unseen,
        methods=split_names(methods),
        draws=draws,
        first_draw=first_draw,
        confidence=confidence,
        rows=rows,
        train=train,
        seed=seed,
    )
    run_study(
        durable.run(selection), durable_page.COLUMNS, "Answers that last", json=json, reuse=reuse, page=page,
        write_page=durable_page.write_page, figure=figure, draw_figure=durable_page.draw_figure,
    )  # fmt: skip


@benchmark.command("exact")
def benchmark_exact(
    names: Names = EXACT_TABLES,
    models: Annotated[
        str, typer.Option("--models", help="Kind, number of trees and depth, separated by commas.")
    ] = ",".join(exact.MODELS),
    seconds: Annotated[float, typer.Option("--seconds", help="Seconds for each proof.")] = exact.SECONDS,
    search: Annotated[
        bool, typer.Option("--search", help="Compare searches with the proven optimum, too.")
    ] = False,
    python: Annotated[
        Path | None,
        typer.Option("--python", help="The interpreter that has DiCE and NICE; default: without them."),
    ] = None,
    seed: Seed = 0,
    rows: TableRows = exact.ROWS,
    train: TrainingRows = exact.TRAINING,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Proofs about tree models: their time, and searches against the proven optimum.

    Example: plausiflow benchmark exact --datasets german_credit --models xgb-100x6 --rows 10
    """
    selection = exact.ExactSelection(
        tables=split_names(names),
        models=split_names(models),
        seconds=seconds,
        search=search,
        peers=None if python is None else peers.PeerSettings(python=python),
        rows=rows,
        train=train,
        seed=seed,
    )
    run_study(
        exact.run(selection), exact.COLUMNS, "Proofs about trees",
        json=json, reuse=reuse, page=page, write_page=exact.write_page,
    )  # fmt: skip


@benchmark.command("labels")
def benchmark_labels(
    names: Names = SCARCE_TABLES,
    labelled: Annotated[
        int, typer.Option("--labelled", help="The number of training rows with labels.")
    ] = labels.LABELLED,
    seed: Seed = 0,
    rows: TableRows = labels.ROWS,
    train: TrainingRows = labels.TRAINING,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Scarce labels: densities of the labelled rows, of the model's decisions, and by Bayes' rule.

    Example: plausiflow benchmark labels --datasets loans --rows 50 --train 1000
    """
    selection = labels.LabelSelection(
        tables=split_names(names), rows=rows, train=train, labelled=labelled, seed=seed
    )
    run_study(
        labels.run(selection), labels.COLUMNS, "Scarce labels",
        json=json, reuse=reuse, page=page, write_page=labels.write_page,
    )  # fmt: skip


@benchmark.command("peers")
def benchmark_peers(
    names: Names = PEER_TABLES,
    seed: Seed = 0,
    rows: TableRows = peers.ROWS,
    train: TrainingRows = None,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
    python: Annotated[
        Path, typer.Option("--python", help="The interpreter that has the peers installed.")
    ] = Path(sys.executable),
    methods: Annotated[str, typer.Option("--methods", help="Peers, separated by commas.")] = PEERS,
    row_limit: Annotated[float, typer.Option("--seconds-per-row", help="Time limit per row.")] = 20.0,
    method_limit: Annotated[
        float, typer.Option("--seconds-per-method", help="Time limit per peer.")
    ] = 1800.0,
) -> None:
    """DiCE and NICE on the same model, rows and target classes, measured as our counterfactuals.

    Example: plausiflow benchmark peers --datasets german_credit --python peers/bin/python
    """
    selection = TableSelection(tables=split_names(names), rows=rows, train=train, seed=seed)
    setting = peers.PeerSettings(
        python=python,
        methods=split_names(methods),
        seconds_per_row=row_limit,
        seconds_per_method=method_limit,
    )
    run_study(
        peers.run(selection, setting), peers.COLUMNS, "Peers",
        json=json, reuse=reuse, page=page, write_page=peers.write_page,
    )  # fmt: skip


@benchmark.command("realism-exact")
def benchmark_realism_exact(
    seed: Seed = 0,
    rows: Annotated[int, typer.Option("--rows", help="Rows that are explained.")] = exact_density.ROWS,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """The two-sample test of realism where the true density is a formula: what do perfect answers get?

    Example: plausiflow benchmark realism-exact --rows 50
    """
    run_study(
        exact_density.run(seed, rows=rows), exact_density.COLUMNS, "Perfect answers",
        json=json, reuse=reuse, page=page, write_page=exact_density.write_page,
    )  # fmt: skip


@benchmark.command("realism")
def benchmark_realism(
    names: Names = REALISM_TABLES,
    kinds: Annotated[str, typer.Option("--models", help="Any of mlp, hgb, separated by commas.")] = ",".join(
        realism.MODELS
    ),
    seed: Seed = 0,
    rows: TableRows = realism.ROWS,
    train: TrainingRows = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two tables, 50 rows, the MLP.")] = False,
    without_peers: Annotated[bool, typer.Option("--no-peers", help="Leave out NICE and DiCE.")] = False,
    python: Annotated[
        Path, typer.Option("--python", help="The interpreter that has the peers installed.")
    ] = Path(sys.executable),
    folder: Annotated[Path, typer.Option("--folder", help="Where finished tasks are stored.")] = Path(
        "out/realism"
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the rows of the folder first.")] = False,
    json: Json = None,
    page: Page = None,
) -> None:
    """Do counterfactuals look like real rows? Logic, grids, neighbours, a two-sample test, beside peers.

    A run that was stopped continues where it was. Example:
    plausiflow benchmark realism --quick --no-peers --folder out/realism-quick
    """
    others = None if without_peers else peers.PeerSettings(python=python, methods=realism.PEERS)
    selection = realism.RealismSelection(
        tables=split_names(names), models=split_names(kinds), rows=rows, train=train, seed=seed, peers=others
    )
    selection = selection.quick() if quick else selection
    if selection.peers is not None:
        selection.peers.versions()
    outcome = runner.run(
        selection.tasks(),
        folder,
        realism.RealismWork(selection),
        settings={"rows": selection.rows, "train": selection.train},
        fresh=fresh,
    )
    print_table(outcome.finished, realism.COLUMNS, "Realism")
    typer.echo(str(outcome))
    if json is not None:
        write_json(outcome.rows, json)
        typer.echo(f"Rows: {json}")
    if page is not None:
        realism.write_page(outcome.finished, page)
        typer.echo(f"Written: {page}")
    if outcome.failed:
        raise typer.Exit(1)


@benchmark.command("models")
def benchmark_models(
    names: Names = MODEL_TABLES,
    numbers: Annotated[
        str, typer.Option("--numbers", help="Data sets for the part with one flow; may be empty.")
    ] = NUMBERS,
    kinds: Annotated[str, typer.Option("--models", help="Models, separated by commas.")] = MODELS,
    seed: Seed = 0,
    rows: TableRows = models.ROWS,
    train: TrainingRows = None,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Boosted trees and forests: share found, verified on the model itself, stability, distance and cost.

    Example: plausiflow benchmark models --datasets law --numbers law --models hgb --rows 50
    """
    selection = models.ModelSelection(
        tables=split_names(names),
        numbers=split_names(numbers),
        models=split_names(kinds),
        rows=rows or models.ROWS,
        train=train or models.TRAINING,
        numbers_train=train or models.NUMBERS_TRAINING,
        seed=seed,
    )
    run_study(
        models.run(selection), models.COLUMNS, "Models without gradients",
        json=json, reuse=reuse, page=page, write_page=models.write_page,
    )  # fmt: skip


@benchmark.command("serving")
def benchmark_serving(
    names: Names = "loans",
    clients: Annotated[int, typer.Option("--clients", help="Concurrent clients.")] = serving.CLIENTS,
    requests: Annotated[
        int, typer.Option("--requests", help="Requests in total, with one row each.")
    ] = serving.REQUESTS,
    alone: Annotated[
        int | None,
        typer.Option("--alone", help="Requests when rows are explained one by one; default: as --requests."),
    ] = None,
    seed: Seed = 0,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """The service under load: throughput, latency, and responses compared with the library.

    Example: plausiflow benchmark serving --clients 16 --requests 200 --alone 50
    """
    selection = serving.ServingSelection(
        tables=split_names(names), clients=clients, requests=requests, alone=alone, seed=seed
    )
    run_study(
        serving.run(selection), serving.COLUMNS, "The service under load",
        json=json, reuse=reuse, page=page, write_page=serving.write_page,
    )  # fmt: skip
