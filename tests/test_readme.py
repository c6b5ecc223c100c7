"""What the README shows runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_ten_lines_run_and_print_what_the_readme_says(capsys):
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert code is not None
    exec(compile(code[1], "README.md", "exec"), {})
    promised = re.search(r"print\(result\)\s+# (.*)", code[1])
    assert promised is not None
    assert capsys.readouterr().out.startswith(promised[1])


def test_every_file_the_readme_links_to_exists():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
