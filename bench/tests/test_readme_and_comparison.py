"""The README and the comparison quote the generated pages as they are, and every fact names its source."""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plausiflow.cli import app
from plausiflow.errors import InvalidInputError
from plausiflow_bench import readme
from plausiflow_bench.harness.printing import markdown_table
from plausiflow_bench.tables import peers

ROOT = Path(__file__).parents[2]
COMPARISON = ROOT / "docs" / "comparison.md"
PEERS = {"DiCE": "D", "alibi": "A", "CARLA": "C", "CEL": "L", "NICE": "N"}


def cited(text):
    """The sources that a text names in brackets."""
    groups = re.findall(r"\[([A-Z]\d(?:, [A-Z]\d)*)\]", text)
    return {key for group in groups for key in group.split(", ")}


def rows():
    """The rows of the tables of features: a name, and the cell of each library."""
    found, head = [], None
    for line in COMPARISON.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            head = None
        elif cells[1:] == ["plausiflow", *PEERS]:
            head = cells
        elif head is not None and not line.startswith("|---"):
            found.append((cells[0], dict(zip(head[1:], cells[1:], strict=True))))
    return found


def sources():
    """The sources that the page lists."""
    return re.findall(r"^\| ([A-Z]\d) \| (.+) \|$", COMPARISON.read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", readme.PAGES, ids=str)
def test_a_page_has_the_figures_that_its_sources_have_now(page, tmp_path):
    copy = tmp_path / page.name
    shutil.copy(ROOT / page, copy)
    assert readme.write_page(copy, ROOT / "docs")
    assert copy.read_text() == (ROOT / page).read_text(), f"run `plausiflow benchmark readme --page {page}`"


def test_both_pages_have_the_paper_and_the_peers():
    own, comparison = ((ROOT / page).read_text() for page in readme.PAGES)
    assert all(readme.mark(name) in own for name in ("solvers", "peers"))
    assert all(readme.mark(n) in comparison for n in ("solvers", "peers in full", "where peers are better"))


def test_the_command_writes_the_pages_it_is_given(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{readme.mark('peers')}\nold\n<!-- end -->\nafter\n")
    done = CliRunner().invoke(app, ["benchmark", "readme", "--page", str(page), "--docs", str(ROOT / "docs")])
    assert done.exit_code == 0, done.output
    written = page.read_text()
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "| adult | plausiflow |" in written
    assert "old" not in written


def test_where_peers_are_better_is_read_off_the_bold_values(tmp_path):
    head = [*readme._SHORT, "validity"]
    own = ["t", "plausiflow", "0.9", "**0**", "**1**", "**1**", "3", "**1**", "**1**", "9", "–", "**1**"]
    one = ["t", "one", "**1**", "**0**", "0", "0", "**2**", "2", "2", "8", "x 1", "**1**"]
    two = ["t", "two", "**1**", "**0**", "0", "0", "4", "2", "2", "**1**", "y 2", "**1**"]
    table = markdown_table(head, [own, one, two])
    text = f"{peers.MARK}\n{table}\n\nTraining rows: t 5; seed 0; commit abc.\n<!-- end -->\n"
    (tmp_path / "tables.md").write_text(text)
    assert readme.peers_better(tmp_path).splitlines()[2:] == [
        "| t | found | one, two | 1 | 0.9 |",
        "| t | changes | one | 2 | 3 |",
        "| t | fit_cpu_seconds | two | 1 | 9 |",
        "",
        "Training rows: t 5; seed 0; commit abc.",
    ]


def test_a_page_without_marks_is_an_error(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(InvalidInputError, match=r"page\.md must have a mark .* sections are solvers, peers"):
        readme.write_page(page, ROOT / "docs")


def test_a_source_without_its_table_is_an_error(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"{readme.mark('solvers')}\n<!-- end -->\n")
    with pytest.raises(InvalidInputError, match=r"performance\.md cannot be read"):
        readme.write_page(page, tmp_path)
    (tmp_path / "performance.md").write_text("# Performance\n\n## Published models\n\nNot run.\n")
    with pytest.raises(InvalidInputError, match=r"table .* after '## Published models'; missing"):
        readme.write_page(page, tmp_path)


def test_every_fact_about_another_library_names_a_source_of_that_library():
    found = rows()
    assert len(found) >= 15
    for name, cells in found:
        for library, letter in PEERS.items():
            keys = cited(cells[library])
            assert keys, f"{name}, {library}: no source"
            assert {key[0] for key in keys} == {letter}, f"{name}, {library}: {keys}"


def test_every_fact_about_plausiflow_links_to_where_it_stands():
    for name, cells in rows():
        assert re.search(r"\]\([^)]+\)", cells["plausiflow"]), name


def test_sources_are_listed_once_and_all_used():
    listed = [key for key, _ in sources()]
    assert len(listed) == len(set(listed))
    assert set(listed) == cited(COMPARISON.read_text())


def test_sources_name_a_version_and_the_page_a_date():
    """A page of the web without a version says when it was read."""
    assert "All read on 20" in COMPARISON.read_text()
    for key, text in sources():
        assert re.search(r"\b\d+\.\d+|read on \d{4}-\d\d-\d\d", text), key


def test_what_they_do_better_is_told_for_each():
    section = COMPARISON.read_text().partition("## What they do better")[2].partition("\n## ")[0]
    for library in PEERS:
        assert f"**{library}.**" in section
