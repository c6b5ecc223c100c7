"""Interrupted and resumed batch runs write the same bytes as one that was not interrupted."""

import os
import signal
from contextlib import contextmanager

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from batches import answers, applicants, parts  # noqa: E402
from plausiflow.batch import output_folder  # noqa: E402
from processes import forked, wait_for  # noqa: E402


@contextmanager
def killed_in_the_middle_of_writing(number: int):
    """Kill this process in the middle of writing the part with this number."""
    write, written = pq.write_table, []

    def half(table, file, **settings):
        written.append(table)
        if len(written) == number:
            buffer = pa.BufferOutputStream()
            write(table, buffer, **settings)
            content = buffer.getvalue().to_pybytes()
            file.write(content[: len(content) // 2])
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        write(table, file, **settings)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(output_folder.pq, "write_table", half)
        yield


def test_a_run_that_is_killed_in_the_middle_of_writing_is_resumed(run, portfolio, tmp_path):
    run(portfolio, tmp_path / "whole")
    out = tmp_path / "out"
    for number, done in ((3, 2), (2, 3)):

        def killed(number=number):
            with killed_in_the_middle_of_writing(number):
                run(portfolio, out, resume=True)

        _, status = os.waitpid(forked(killed), 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert len(parts(out)) == done
        assert len(list(out.glob(".part-*.tmp"))) == 1
    summary = run(portfolio, out, resume=True)
    assert summary.units_before == 3
    assert parts(out) == parts(tmp_path / "whole")
    assert list(out.glob(".*")) == []
    assert (out / "_SUCCESS").read_bytes() == (tmp_path / "whole" / "_SUCCESS").read_bytes()


def test_a_run_that_is_killed_at_any_moment_is_resumed(run, tmp_path):
    given, out = tmp_path / "a.parquet", tmp_path / "out"
    applicants(2000, 5, few=True).to_parquet(given, row_group_size=100)
    run(given, tmp_path / "whole", rows_per_unit=100)
    for enough in (2, 9):
        pid = forked(lambda: run(given, out, rows_per_unit=100, resume=True))
        wait_for(lambda enough=enough: len(list(out.glob("part-*"))) >= enough)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert len(parts(out)) < 20
    run(given, out, rows_per_unit=100, resume=True)
    assert parts(out) == parts(tmp_path / "whole")
    assert answers(out)["row"].tolist() == list(range(1, 2001))


def test_ctrl_c_keeps_complete_parts(run, portfolio, tmp_path, monkeypatch):
    out, write = tmp_path / "out", output_folder.OutputFolder.write_part

    def interrupted(self, unit, name, table):
        if len(parts(out)) == 2:
            raise KeyboardInterrupt
        write(self, unit, name, table)

    monkeypatch.setattr(output_folder.OutputFolder, "write_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(portfolio, out)
    monkeypatch.undo()
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith("part-")) == [
        "_lock",
        "_manifest.json",
    ]
    assert run(portfolio, out, resume=True).units_before == 2
