"""Batch runs with workers, killed again and again or on Ray, against a run that was not interrupted."""

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from batches import answers, applicants, parts  # noqa: E402
from plausiflow import Explainer  # noqa: E402
from plausiflow.batch import BatchRequest, ExplainerLocation, RowSelection, run_batch  # noqa: E402
from plausiflow.workers import Executor, Inline, Processes, Ray  # noqa: E402
from processes import wait_for  # noqa: E402

HERE = Path(__file__).parent
ROWS, UNIT = 30_000, 500


def ran(
    saved: ExplainerLocation | Path,
    given: Path,
    out: Path,
    executor: Executor,
    *,
    unit: int = UNIT,
    device: str = "cpu",
):
    request, selection = (
        BatchRequest(target="granted", device=device),
        RowSelection(rows_per_unit=unit, key="id"),
    )
    return run_batch(saved, given, out, request=request, selection=selection, executor=executor, resume=True)


def with_slow_writes(folder: Path) -> object:
    """Return the model; from here on, this process pauses in the middle of writing a part."""
    write = pq.write_table

    def slowly(table, file, **settings):
        buffer = pa.BufferOutputStream()
        write(table, buffer, **settings)
        content = buffer.getvalue().to_pybytes()
        file.write(content[: len(content) // 2])
        file.flush()
        time.sleep(0.3)
        file.write(content[len(content) // 2 :])

    if os.getpid() != int(os.environ.get("PARENT", "0")):
        pq.write_table = slowly
    return Explainer.load(folder).model


def dying_once(folder: Path, mark: Path, parent: int) -> object:
    """Return the model; the first worker that loads it is killed."""
    if os.getpid() != parent and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Explainer.load(folder).model


def begin(folder: Path, given: Path, out: Path, dtype: torch.dtype) -> None:
    """Run a batch in a process that will be killed."""
    torch.set_default_dtype(dtype)
    os.environ["PARENT"] = str(os.getpid())
    saved = ExplainerLocation(folder=folder, model=partial(with_slow_writes, folder))
    ran(saved, given, out, Processes(workers=2, log=out / "_workers.log"))


def started(folder: Path, given: Path, out: Path) -> subprocess.Popen:
    paths = ", ".join(f"Path({str(path)!r})" for path in (folder, given, out))
    code = f"import test_batch_kills as t, torch; from pathlib import Path; t.begin({paths}, "
    code += f"{torch.get_default_dtype()})"
    path = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)


@pytest.mark.slow
def test_ten_kills_at_random_moments_lose_and_repeat_nothing(folder, tmp_path):
    given, out = tmp_path / "a.parquet", tmp_path / "out"
    rows = applicants(ROWS, 7, few=True)
    rows.to_parquet(given, row_group_size=2 * UNIT)
    ran(folder, given, tmp_path / "whole", Inline())
    rng, halves, done = random.Random(3), 0, 0
    for kill in range(10):
        process = started(folder, given, out)
        if kill:  # the first one is killed at any moment, perhaps before it has written anything
            wait_for(lambda done=done, process=process: process.poll() is not None or len(parts(out)) > done)
        time.sleep(rng.uniform(0, 0.5 if kill else 6.0))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(0.5)  # workers see that their parent is gone
        halves += len(list(out.glob(".part-*.tmp")))
        assert len(parts(out)) >= done
        done = len(parts(out))
    assert 0 < done < ROWS // UNIT, "the kills came too late to test anything"
    assert halves > 0
    process = started(folder, given, out)
    assert process.wait() == 0
    assert parts(out) == parts(tmp_path / "whole")
    assert (out / "_SUCCESS").read_bytes() == (tmp_path / "whole" / "_SUCCESS").read_bytes()
    assert list(out.glob(".*")) == []
    found = answers(out)
    assert found["row"].tolist() == list(range(1, ROWS + 1))
    assert found["id"].tolist() == rows["id"].tolist()
    assert (found["status"] == "found").sum() > 100


ON_RAY, ON_GPU = pytest.mark.ray, pytest.mark.gpu


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "device"),
    [
        pytest.param(Processes(workers=2), "cpu", id="processes"),
        pytest.param(Ray(workers=2), "cpu", id="ray", marks=ON_RAY),
        pytest.param(Processes(workers=2), "cuda", id="processes-gpu", marks=ON_GPU),
        pytest.param(Ray(workers=2, gpus=0.5), "cuda", id="ray-gpu", marks=[ON_RAY, ON_GPU]),
    ],
)
def test_workers_write_the_same_bytes_and_one_that_is_killed_loses_nothing(
    folder, tmp_path, executor, device
):
    if isinstance(executor, Ray):
        pytest.importorskip("ray", reason="the extra `ray` is not installed")
    given = tmp_path / "a.parquet"
    applicants(400, 7).to_parquet(given, row_group_size=90)
    ran(folder, given, tmp_path / "whole", Inline(), unit=40, device=device)
    mark = tmp_path / "killed"
    saved = ExplainerLocation(folder=folder, model=partial(dying_once, folder, mark, os.getpid()))
    summary = ran(saved, given, tmp_path / "out", executor, unit=40, device=device)
    assert mark.exists()
    assert summary.failed == {}
    assert parts(tmp_path / "out") == parts(tmp_path / "whole")
    found = answers(tmp_path / "out")
    assert found["row"].tolist() == list(range(1, 401))
    assert (found["status"] == "found").sum() > 50
