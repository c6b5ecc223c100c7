"""The commands that README and documentation show exist, with their options and arguments."""

import re

import pytest
from typer.main import get_command

from pages import ROOT, WRITTEN, command_lines, fences, named, of_command_line, of_pages, prose
from plausiflow.cli import app


def problem_with(words: list[str]) -> str | None:
    """Return the error of the command line for these words, without running the command."""
    command, path = get_command(app), "plausiflow"
    while True:
        context = command.context_class(command, info_name=path)
        try:
            values, rest, _ = command.make_parser(context).parse_args(args=list(words))
        except Exception as error:
            return f"{path}: {error}"
        subcommands = getattr(command, "commands", None)
        if subcommands is None:
            break
        if not rest or rest[0] not in subcommands:
            return f"{path}: no command {rest[:1]}; there are {sorted(subcommands)}"
        path, command, words = f"{path} {rest[0]}", subcommands[rest[0]], rest[1:]
    if rest:
        return f"{path}: too many arguments: {rest}"
    given = {name for name, value in values.items() if value is not None and value != ()}
    missing = [part.name for part in command.params if part.required and part.name not in given]
    return f"{path}: missing {missing}" if missing else None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plausiflow explain credit", "missing"),
        ("plausiflow explain credit rows.csv more.csv", "too many"),
        ("plausiflow explian credit rows.csv", "no command"),
        ("plausiflow explain credit rows.csv --tarhget granted", "--tarhget"),
        ("plausiflow explain credit rows.csv --target", "--target"),
        ("plausiflow benchmark everything", "no command"),
    ],
)
def test_a_command_that_could_not_be_run_is_noticed(line, message):
    assert message in (problem_with(of_command_line(line)) or "")


@pytest.mark.parametrize("page", [page for page in WRITTEN if command_lines(page)], ids=named)
def test_every_command_of_a_page_could_be_run(page):
    problems = [
        f"{line}\n    {problem}"
        for line in command_lines(page)
        if (problem := problem_with(of_command_line(line)))
    ]
    assert not problems, "\n".join(problems)


@of_pages
def test_commands_in_the_text_of_a_page_exist_with_their_options(page):
    for text in re.findall(r"(?<!`)`plausiflow ([^`]+)`(?!`)", prose(page)):
        command, words = get_command(app), text.split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        if hasattr(command, "commands"):  # an option of the group, or a placeholder for its commands
            assert not words or words[0][0] == "-" or words[0] in {"...", "…"} or words[0].isupper(), text
            continue
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        options = {word.split("=")[0] for word in words if re.match(r"--\w", word)}
        assert options <= known | {"--help"}, text


@of_pages
def test_targets_of_make_that_a_page_names_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = "\n".join(body for language, _, body in fences(page) if language in {"", "sh", "bash", "console"})
    named = re.findall(r"^make ([a-z][a-z-]*)", shown, re.MULTILINE) + re.findall(
        r"`make ([a-z][a-z-]*)", prose(page)
    )
    assert set(named) <= targets
