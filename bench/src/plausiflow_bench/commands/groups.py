"""``plausiflow benchmark groups``: few actions for many rows, many rows, the audit, and reasons."""

from __future__ import annotations

from typing import Annotated

import typer

from plausiflow_bench.commands.options import (
    Json,
    Page,
    Reuse,
    Seed,
    benchmark,
    run_study,
    split_names,
)
from plausiflow_bench.groups import burden, scale, stability, study


@benchmark.command("groups")
def benchmark_groups(
    numbers: Annotated[
        str, typer.Option("--numbers", help="Data sets and models with one flow, such as law:lr.")
    ] = ",".join(study.NUMBERS),
    defaults: Annotated[
        str, typer.Option("--defaults", help="Data sets and models with default settings, such as law:lr.")
    ] = ",".join(study.DEFAULTS),
    tables: Annotated[
        str, typer.Option("--tables", help="Tables and models with default settings, such as adult:boosted.")
    ] = ",".join(study.TABLES),
    methods: Annotated[str, typer.Option("--methods", help="Methods, separated by commas.")] = ",".join(
        study.METHODS
    ),
    actions: Annotated[
        str, typer.Option("--actions", help="Numbers of actions, over both directions.")
    ] = "20,34",
    rows: Annotated[int, typer.Option("--rows", help="The maximum number of explained rows.")] = 500,
    train: Annotated[int, typer.Option("--train", help="The maximum number of training rows.")] = 3000,
    split: Annotated[int, typer.Option("--split", help="Seed of the split of tables.")] = 0,
    seed: Seed = 0,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Few actions for many rows, beside other group methods on the same rows, model and density.

    Example: plausiflow benchmark groups --numbers law:lr --defaults "" --tables "" --actions 20,34
    """
    selection = study.GroupSelection(
        numbers=split_names(numbers) if numbers else (),
        defaults=split_names(defaults),
        tables=split_names(tables) if tables else (),
        methods=split_names(methods),
        actions=tuple(int(text) for text in split_names(actions)),
        rows=rows,
        train=train,
        split=split,
        seed=seed,
    )
    run_study(
        study.run(selection), study.COLUMNS, "Few actions for many rows",
        json=json, reuse=reuse, page=page, write_page=study.write_page,
    )  # fmt: skip


@benchmark.command("groups-scale")
def benchmark_groups_scale(
    rows: Annotated[int, typer.Option("--rows", help="Generated loans rows.")] = 100_000,
    actions: Annotated[int, typer.Option("--actions", help="The number of actions.")] = 20,
    seed: Seed = 0,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Time and memory of few actions for many rows.

    Example: plausiflow benchmark groups-scale --rows 3000
    """
    run_study(
        scale.run(rows, actions, seed), scale.COLUMNS, "Many rows",
        json=json, reuse=reuse, page=page, write_page=scale.write_page,
    )  # fmt: skip


@benchmark.command("burden")
def benchmark_burden(
    tables: Annotated[int, typer.Option("--tables", help="Tables of each kind.")] = 200,
    rows: Annotated[int, typer.Option("--rows", help="Rows of each table.")] = 1000,
    seed: Seed = 0,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Whether the audit finds a planted burden, and stays silent on null tables.

    Example: plausiflow benchmark burden --tables 20
    """
    run_study(
        burden.run(tables, rows, seed), burden.COLUMNS, "The audit",
        json=json, reuse=reuse, page=page, write_page=burden.write_page,
    )  # fmt: skip


@benchmark.command("reasons")
def benchmark_reasons(
    cases: Annotated[
        str, typer.Option("--cases", help="Tables and models, such as loans:lr, separated by commas.")
    ] = ",".join(stability.CASES),
    rows: Annotated[int, typer.Option("--rows", help="The maximum number of explained rows.")] = 100,
    seeds: Annotated[int, typer.Option("--seeds", help="Explainers that are compared.")] = 3,
    seed: Seed = 0,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Whether rows keep their principal reasons if the explainer is trained again.

    Example: plausiflow benchmark reasons --cases loans:lr --rows 20 --seeds 2
    """
    run_study(
        stability.run(split_names(cases), rows, seeds, seed), stability.COLUMNS, "Reasons",
        json=json, reuse=reuse, page=page, write_page=stability.write_page,
    )  # fmt: skip
