"""What the README shows runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_ten_lines_run_and_print_what_the_readme_says(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    space = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), space)
    printed = capsys.readouterr().out
    promised = re.search(r"print\(result\)\s+# (Explanations\(\d+ rows: )", blocks[0])
    assert promised is not None
    assert printed.startswith(promised[1])
    statuses = space["result"].status["status"]
    assert set(statuses) == {"found", "already"}
    assert "→" in printed
    assert space["answers"].feasible.all()
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert (tmp_path / "credit-explainer" / "explainer.json").exists()


def test_every_file_the_readme_links_to_exists():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
