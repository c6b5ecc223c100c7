"""README and documentation hold: code runs, commands exist, links lead somewhere, every name is told."""

import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
import types
import warnings
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import torch
from typer.main import get_command

import plausiflow
from plausiflow import Training, workers
from plausiflow.cli import app
from plausiflow.densities import flows, mixed
from plausiflow.errors import DataNotFoundError, MissingExtraError
from plausiflow.search import fitting
from plausiflow.search.calibration import PlausibilityWarning
from plausiflow.workers import Inline

ROOT = Path(__file__).resolve().parents[1]
DOCS, PACKAGE = ROOT / "docs", ROOT / "src" / "plausiflow"
BUILT = {"_build", "auto_examples", "api"}


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


DOCUMENTS = sorted(page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in BUILT)
PAGES = [ROOT / "README.md", *DOCUMENTS]
WRITTEN = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
of_pages = pytest.mark.parametrize("page", PAGES, ids=named)


@cache
def fences(page: Path) -> list[tuple[str, int, str]]:
    """Every block of code of a page: its language, the line where it begins, and its text."""
    pattern = re.compile(
        r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`\n]*)\n(?P<body>.*?)^ *(?P=ticks) *$", re.M | re.S
    )
    text = page.read_text()
    return [
        (found["info"].strip(), text.count("\n", 0, found.start()) + 2, textwrap.dedent(found["body"]))
        for found in pattern.finditer(text)
    ]


@cache
def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^ *(`{3,})[^`\n]*\n.*?^ *\1 *$", "", page.read_text(), flags=re.M | re.S)


# Code

AT_HAND = """
import numpy as np
import pandas as pd
import plausiflow as pf
from sklearn.linear_model import LogisticRegression

random = np.random.default_rng(0)
X = pd.DataFrame({"income": random.integers(10, 60, 160) * 100})
X["job"] = random.choice(["clerk", "nurse"], 160)
y = pd.Series(np.where(X["income"] > 3000, "granted", "rejected"), name="loan")
model = pf.LinearClassifier(training=pf.Training(epochs=20))
"""
NUMBERS = 'X = X[["income"]]\nmodel = LogisticRegression().fit(X, y)\n'
FITTED = "explainer = pf.Explainer(model, judges=0, confidence=None, plausibility=0.1).fit(X, y)\n"
SAVED = FITTED + 'explainer.save("credit")\n'
PORTFOLIO = """
from pathlib import Path
Path("portfolio").mkdir()
X.assign(customer=range(len(X))).to_parquet("portfolio/rows.parquet")
"""
TENSORS = """
import torch
from plausiflow import KDE, LinearClassifier, PPCEF, Thresholded
x = torch.rand(120, 2)
y = (x.sum(dim=1) > 1).long()
model = LinearClassifier().fit(x, y)
plausibility = Thresholded(density=KDE().fit(x, y)).fit(x, y)
"""
READERS_HAVE = {
    "docs/labels.md": AT_HAND + NUMBERS,
    "docs/plausibility.md": TENSORS,
    "docs/saving.md": AT_HAND + NUMBERS + FITTED,
    "docs/scale.md": AT_HAND + SAVED + PORTFOLIO,
    "docs/service.md": AT_HAND + SAVED,
}
"""What the readers of a page have before its first line: pages that show calls, not whole programs."""
FILLED_IN = {"docs/plausibility.md": {"plausibility=...": "plausibility=plausibility"}}
"""Dots on a page that stand for something of the reader's."""
EXTRAS = {
    "xgboost",
    "lightgbm",
    "catboost",
    "matplotlib",
    "cvxpy",
    "clarabel",
    "ray",
    "pyarrow",
    "skops",
    "fastapi",
    "uvicorn",
}


@contextmanager
def as_users_have_it():
    """Single precision, as torch has it unless told otherwise."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def run(page: Path, monkeypatch) -> types.ModuleType:
    """Run the blocks of a page one after the other, as one program in the current folder."""
    program = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", program)
    blocks = [(line, body) for language, line, body in fences(page) if language == "python"]
    if named(page) in READERS_HAVE:
        blocks.insert(0, (1, READERS_HAVE[named(page)]))
    for line, body in blocks:
        for dots, meant in FILLED_IN.get(named(page), {}).items():
            body = body.replace(dots, meant)
        code = compile("\n" * (line - 1) + body, str(page), "exec")
        try:
            exec(code, program.__dict__)
        except (DataNotFoundError, MissingExtraError) as error:
            pytest.skip(f"{named(page)}, line {line}: {error}")
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in EXTRAS:
                raise
            pytest.skip(f"{named(page)}, line {line}: {error.name} is not installed")
    return program


def shorten(monkeypatch) -> None:
    """Let densities learn for a moment only: such pages show how to ask, not what comes of it."""
    brief = Training(epochs=1, learning_rate=1e-2)
    for place, name in ((flows, "FLOW_TRAINING"), (mixed, "FLOW_TRAINING"), (mixed, "LEVELS_TRAINING")):
        monkeypatch.setattr(place, name, brief)
    monkeypatch.setattr(fitting, "MEMBERS", 2)


def stand_in_for_processes(monkeypatch) -> None:
    """Tasks in this process: workers would each load torch, to explain a hundred rows."""
    pytest.importorskip("pyarrow", reason="the extra `files` is not installed")
    monkeypatch.setattr(workers, "Processes", lambda workers: Inline())


def end_services_at_once(monkeypatch) -> None:
    """A server that gets ready, on a free port, and ends."""
    uvicorn = pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
    from plausiflow.service import server

    listening = server._listening
    monkeypatch.setattr(server, "_listening", lambda host, port: listening(host, 0))
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)


CIRCUMSTANCES = {
    "docs/scale.md": stand_in_for_processes,
    "docs/service.md": end_services_at_once,
}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(language == "python" for language, *_ in fences(page))], ids=named
)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    if named(page) in READERS_HAVE:
        shorten(monkeypatch)
    CIRCUMSTANCES.get(named(page), lambda patch: None)(monkeypatch)
    warnings.simplefilter("ignore", PlausibilityWarning)  # that rows are few is no fault of a page
    with as_users_have_it():
        program = run(page, monkeypatch)
    if page == ROOT / "README.md":
        keeps_its_promises(program, capsys.readouterr().out, tmp_path)


def keeps_its_promises(program, printed, folder):
    """What the README says that its lines print and write."""
    first = next(body for language, _, body in fences(ROOT / "README.md") if language == "python")
    promised = re.search(r"print\(result\)\s+# (Explanations\(\d+ rows: )", first)
    assert promised is not None
    assert printed.startswith(promised[1])
    assert set(program.result.status["status"]) == {"found", "already"}
    assert "→" in printed
    assert program.answers.feasible.all()
    assert (folder / "report.html").stat().st_size > 10_000
    assert (folder / "credit-explainer" / "explainer.json").exists()


# Commands


def command_lines(page: Path) -> list[str]:
    """The commands of ours that a page shows."""
    shells = ("", "sh", "bash", "shell", "console", "text")
    texts = [body.replace("\\\n", " ") for language, _, body in fences(page) if language in shells]
    lines = [line.removeprefix("$ ") for text in texts for line in text.splitlines()]
    return [line for line in lines if re.match(r"(\S+=\S+ )*(\S*/)?plausiflow ", line)]


def of_command_line(line: str) -> list[str]:
    """The words after `plausiflow`, up to what a shell would read as the end of the command."""
    words = shlex.split(line, comments=True)
    start = next(i for i, word in enumerate(words) if Path(word).name == "plausiflow") + 1
    ends = [i for i, word in enumerate(words) if i >= start and word in {"|", "&&", ";", ">", "&"}]
    return words[start : ends[0] if ends else None]


def problem_with(words: list[str]) -> str | None:
    """What the command line would say of these words, without doing anything."""
    command, told = get_command(app), "plausiflow"
    while True:
        context = command.context_class(command, info_name=told)
        try:
            values, rest, _ = command.make_parser(context).parse_args(args=list(words))
        except Exception as error:
            return f"{told}: {error}"
        subcommands = getattr(command, "commands", None)
        if subcommands is None:
            break
        if not rest or rest[0] not in subcommands:
            return f"{told}: no command {rest[:1]}; there are {sorted(subcommands)}"
        told, command, words = f"{told} {rest[0]}", subcommands[rest[0]], rest[1:]
    if rest:
        return f"{told}: too many arguments: {rest}"
    given = {name for name, value in values.items() if value is not None and value != ()}
    missing = [part.name for part in command.params if part.required and part.name not in given]
    return f"{told}: missing {missing}" if missing else None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("plausiflow explain credit", "missing"),
        ("plausiflow explain credit rows.csv more.csv", "too many"),
        ("plausiflow explian credit rows.csv", "no command"),
        ("plausiflow explain credit rows.csv --tarhget granted", "--tarhget"),
        ("plausiflow explain credit rows.csv --target", "--target"),
        ("plausiflow benchmark everything", "no command"),
    ],
)
def test_a_command_that_could_not_be_run_is_noticed(line, told):
    assert told in (problem_with(of_command_line(line)) or "")


@pytest.mark.parametrize("page", [page for page in WRITTEN if command_lines(page)], ids=named)
def test_every_command_of_a_page_could_be_run(page):
    problems = [
        f"{line}\n    {told}" for line in command_lines(page) if (told := problem_with(of_command_line(line)))
    ]
    assert not problems, "\n".join(problems)


@of_pages
def test_commands_in_the_text_of_a_page_exist_with_their_options(page):
    for told in re.findall(r"(?<!`)`plausiflow ([^`]+)`(?!`)", prose(page)):
        command, words = get_command(app), told.split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        if hasattr(
            command, "commands"
        ):  # what follows is an option of all of them, or stands for any of them
            assert not words or words[0][0] == "-" or words[0] in {"...", "…"} or words[0].isupper(), told
            continue
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        options = {word.split("=")[0] for word in words if re.match(r"--\w", word)}
        assert options <= known | {"--help"}, told


@of_pages
def test_targets_of_make_that_a_page_names_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = "\n".join(body for language, _, body in fences(page) if language in {"", "sh", "bash", "console"})
    told = re.findall(r"^make ([a-z][a-z-]*)", shown, re.MULTILINE) + re.findall(
        r"`make ([a-z][a-z-]*)", prose(page)
    )
    assert set(told) <= targets


# Links and files


def targets(page: Path) -> list[str]:
    """Where the links and pictures of a page go, but for addresses on the network."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    found = re.findall(r"\]\(([^()\s]+)(?: \"[^\"]*\")?\)", text) + re.findall(
        r"(?:src|href)=\"([^\"]+)\"", text
    )
    return [target for target in found if not re.match(r"[a-z][a-z+.-]*:", target)]


@cache
def anchors(page: Path) -> set[str]:
    """The names of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


def has(place: Path, fragment: str) -> bool:
    """Whether there is such a heading on a page, or such a name in a module."""
    if place.suffix == ".py":
        last = re.escape(fragment.split(".")[-1])
        return re.search(rf"^ *(def|class) {last}\b|^{last}\b", place.read_text(), re.MULTILINE) is not None
    return place.suffix != ".md" or fragment in anchors(place)


@pytest.mark.parametrize("page", WRITTEN, ids=named)
def test_every_link_of_a_page_leads_somewhere(page):
    for target in targets(page):
        name, _, fragment = target.partition("#")
        place = Path(os.path.normpath(page.parent / name)) if name else page
        assert place.exists(), f"{target}: there is no such file (examples are linked as gallery/plot_*.py)"
        assert not fragment or has(place, fragment), target


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.name != "comparison.md"], ids=named)
def test_every_file_that_a_page_names_is_there(page):
    """But for the page that names files of other projects."""
    places = (ROOT, DOCS, PACKAGE, PACKAGE.parent, ROOT / "tests", page.parent)
    for told in re.findall(r"(?<!`)`([\w./-]+\.(?:py|md))`(?!`)", prose(page)):
        ours = told.endswith(".md") or "/" in told or told.startswith("test_")
        if ours and not told.startswith(("out/", "/")):
            assert any((place / told).exists() for place in places), told


def listed(page: Path) -> list[str]:
    """The pages in the lists of contents of a page, as paths without ending."""
    blocks = [body for language, _, body in fences(page) if language.startswith("{toctree}")]
    lines = [line.strip() for body in blocks for line in body.splitlines()]
    return [os.path.relpath(page.parent / line, DOCS) for line in lines if line and not line.startswith(":")]


def test_every_page_is_in_a_list_of_contents_and_every_entry_is_a_page():
    entries = [entry for page in DOCUMENTS for entry in listed(page)]
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCUMENTS} - {"index"}
    assert sorted(entries) == sorted({*pages, "auto_examples/index"})


# The reference


def summarised() -> list[str]:
    """The full names on the page of the reference."""
    names, module = [], ""
    for language, _, body in fences(DOCS / "api.md"):
        for line in body.splitlines() if language == "{eval-rst}" else ():
            if told := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = told[1]
            elif told := re.match(r" {3}([A-Za-z][\w.]*)$", line):
                names.append(f"{module}.{told[1]}")
    return names


def found(name: str) -> object:
    """What a full name stands for."""
    module, _, rest = name, "", ""
    while True:
        try:
            thing = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
    for part in rest.split(".") if rest else ():
        thing = getattr(thing, part)
    return thing


def undocumented(name: str, thing: object) -> list[str]:
    """Public parts of a thing, and itself, that have no docstring of their own."""
    if inspect.ismodule(thing):
        own = [n for n in vars(thing) if not n.startswith("_")]
        inside = {
            n: getattr(thing, n)
            for n in own
            if getattr(getattr(thing, n), "__module__", None) == thing.__name__
        }
    elif inspect.isclass(thing):
        inside = {n: part for n, part in vars(thing).items() if not n.startswith("_")}
        inside = {
            n: part for n, part in inside.items() if inspect.isroutine(part) or isinstance(part, property)
        }
    else:
        inside = {}
    text = inspect.getdoc(thing) or ""
    missing = [name] if not text or (inspect.isclass(thing) and text.startswith(f"{thing.__name__}(")) else []
    return missing + [m for n, part in inside.items() for m in undocumented(f"{name}.{n}", part)]


def test_every_public_name_is_in_the_reference():
    assert {f"plausiflow.{name}" for name in plausiflow.__all__} <= set(summarised())


def test_no_name_is_twice_in_the_reference():
    assert len(summarised()) == len(set(summarised()))


@pytest.mark.parametrize(
    "module",
    [
        "methods",
        "constraints",
        "densities",
        "classifiers",
        "solvers",
        "search",
        "scale",
        "workers",
        "service",
    ],
)
def test_every_class_and_function_of_a_public_module_is_in_the_reference(module):
    room = importlib.import_module(f"plausiflow.{module}")
    told = {id(found(name)) for name in summarised()}
    own = {name: getattr(room, name) for name in room.__all__}
    things = {
        name: thing for name, thing in own.items() if inspect.isclass(thing) or inspect.isfunction(thing)
    }
    assert [name for name, thing in things.items() if id(thing) not in told] == []


@pytest.mark.parametrize("name", summarised())
def test_everything_in_the_reference_has_a_docstring(name):
    assert undocumented(name, found(name)) == []


# The whole

BUILD = """
import socket
import sys

connect = socket.socket.connect

def near(self, address):
    network = self.family in (socket.AF_INET, socket.AF_INET6)
    if network and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise AssertionError(f"a network call: {address}")
    return connect(self, address)

socket.socket.connect = near

from sphinx.cmd.build import main

sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning_and_without_the_network(tmp_path):
    for package in ("sphinx", "furo", "myst_parser", "sphinx_gallery", "matplotlib"):
        pytest.importorskip(package, reason="the extra `docs` is not installed")
    options = ["-b", "html", "-W", "--keep-going", "-n", "-q", "-d", tmp_path / "doctrees"]
    command = [sys.executable, "-c", BUILD, *map(str, options), str(DOCS), str(tmp_path / "html")]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings, timeout=1800)
    assert done.returncode == 0, done.stderr[-8000:]
    loads = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"(?:https?:)?//[^>]*>")
    remote = {page.name: loads.findall(page.read_text()) for page in (tmp_path / "html").rglob("*.html")}
    assert {name: found for name, found in remote.items() if found} == {}
