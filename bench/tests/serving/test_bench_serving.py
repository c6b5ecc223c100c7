"""The study of the service under load."""

import json
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from plausiflow.densities import mixed
from plausiflow.errors import InvalidInputError
from plausiflow.service import ServiceSettings
from plausiflow_bench.serving import study
from plausiflow_bench.serving.load import NAME
from plausiflow_bench.tables import cases
from serving import instances, people, running

ROWS = 20


@pytest.fixture(scope="module")
def served():
    return {NAME: people()[0]}


@pytest.fixture(scope="module")
def bodies():
    return [{"instances": [row], "target": "yes"} for row in instances(people()[1].iloc[:ROWS])]


@pytest.fixture(scope="module")
def library():
    """The library's results for the same rows, each alone in its request."""
    explainer, frame = people()
    rows = json.loads(explainer.explain(frame.iloc[:ROWS], "yes").to_json())["rows"]
    return [{**row, "row": 0} for row in rows]


@pytest.mark.slow
def test_the_study_measures_every_scenario(tmp_path, served, bodies, library, monkeypatch):
    """Servers are forked, which saves the seconds of an import."""

    @contextmanager
    def forked_server(folder, *options):
        given = dict(zip(options[::2], map(int, options[1::2]), strict=True))
        names = {name.removeprefix("--").replace("-", "_"): value for name, value in given.items()}
        place = tmp_path / str(time.monotonic_ns())
        place.mkdir()
        with running(place, served, settings=ServiceSettings(**names)) as server:
            yield Forked(server)

    class Forked(study.ServerProcess):
        def __init__(self, server):
            super().__init__(self, server.address, server.log)
            object.__setattr__(self, "terminate", server.terminate)
            object.__setattr__(self, "wait", lambda seconds: server.wait())

    monkeypatch.setattr(study, "run_server", forked_server)
    selection = study.ServingSelection(clients=8, requests=24, alone=8)
    rows = list(study.LoadTest(bodies, library, selection).rows(tmp_path))
    together, one, crowded, ended = rows
    assert [row["method"] for row in rows] == ["together", "one by one", "too many", "ended"]
    assert [row["answered"] for row in (together, one)] == [24, 8]
    assert one["batch"] == 1.0 < together["batch"]
    assert all(row["errors"] == row["lost"] == 0 for row in rows)
    assert all(row["difference"] < 1e-5 for row in rows)
    assert crowded["answered"] + crowded["refused"] == 24
    assert ended["answered"] >= 6


def test_a_study_of_nothing_is_refused():
    with pytest.raises(InvalidInputError, match="`clients` must be at least 1"):
        study.ServingSelection(clients=0)


@pytest.mark.slow
def test_the_whole_study_runs_on_a_fitted_explainer(monkeypatch):
    for name in ("FLOW_TRAINING", "LEVELS_TRAINING"):
        monkeypatch.setattr(mixed, name, replace(getattr(mixed, name), epochs=4))
    cases.fit_case.cache_clear()
    selection = study.ServingSelection(rows=20, train=300, clients=16, requests=48, alone=8)
    together, one, crowded, ended = study.run(selection)
    cases.fit_case.cache_clear()
    assert together["answered"] == 48
    assert one["ratio"] > 2
    assert crowded["refused"] > 0
    assert ended["lost"] == 0
    assert max(row["difference"] for row in (together, one, crowded, ended)) < 1e-5
