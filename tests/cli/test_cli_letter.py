"""``plausiflow letter`` writes one file for each row, and checks everything before it searches."""

from commanding import done, make, refused


def test_each_row_gets_a_letter_named_by_its_label(folder, explainer, tmp_path):
    out = tmp_path / "letters"
    finished = done(
        "letter", explainer, folder / "rows.csv", "--key", "customer", "--language", "de", "--out", out
    )
    names = sorted(path.name for path in out.iterdir())
    assert names == ["letter-000.txt", "letter-001.txt", "letter-002.txt", "letter-003.txt"]
    assert "4 letters" in finished.stdout
    assert "Zeichen: 002" in (out / "letter-002.txt").read_text(encoding="utf-8")


def test_letters_in_html_are_pages(folder, explainer, tmp_path):
    out = tmp_path / "letters"
    done("letter", explainer, folder / "rows.csv", "--format", "html", "--out", out)
    assert (out / "letter-1.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_problems_are_reported_before_the_search(folder, explainer, tmp_path):
    rows, full = folder / "rows.csv", make(tmp_path / "full")
    (full / "a").write_text("")
    assert "contains files already" in refused("letter", explainer, rows, "--out", full)
    assert "is a file" in refused("letter", explainer, rows, "--out", full / "a")
    out = tmp_path / "letters"
    assert "`language` must be" in refused("letter", "nowhere", rows, "--language", "xx", "--out", out)
    assert "Jinja2 template" in refused("letter", "nowhere", rows, "--template", "none", "--out", out)
    assert not out.exists()
