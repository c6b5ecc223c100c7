"""Letters: English, German and a language of the user's own; every status; escaped values; bad templates."""

import tomllib
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from plausiflow.errors import InvalidInputError
from plausiflow.explanations.checks import STATUSES
from plausiflow.letters import LANGUAGES, read_catalogue
from plausiflow.letters.catalogue import _PLACEHOLDER, fill
from plausiflow.search import ChangeRoles
from reporting import Page
from results import build, loans, schema_of


def built_in(language):
    path = files("plausiflow.letters").joinpath("catalogues", f"{language}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def applicants(**parts):
    given = loans()
    figures = pd.DataFrame(
        {"cost": [1.0, 2.0, 3.0], "l1": 1.0, "l2": 1.0, "n_changes": 1, "probability": [0.59, 0.6, 0.995]}
        | {"log_density": 0.0, "score": 0.5, "judged": [1.0, 1.0, 2 / 3]}
    )
    return build(**(given | {"figures": figures, "outcome": "loan", "target": "granted"} | parts))


def roles():
    return ChangeRoles(
        answer=np.array([0, 0]), feature=("income", "open_lines"), serves=("decision", "plausibility"),
        adverse=np.array([False, True]),
    )  # fmt: skip


def test_an_english_letter_has_the_changes_their_roles_and_how_sure_they_are():
    text = " ".join(applicants(roles=roles()).letter(0).split())
    assert "Reference: Ann" in text
    assert "The decision would be granted if the following were different." in text
    assert "Needed for the decision: - income: 38,500 (now 31,000)" in text
    assert (
        "so that the whole stays realistic: - open_lines: 3 (now 4); by itself this is unfavourable" in text
    )
    assert "The model gives this outcome 25 % now, and 59 % with these changes." in text
    assert "All independent checks find the result realistic." in text


def test_a_german_letter_writes_numbers_and_shares_as_german_does():
    text = " ".join(applicants().letter(0, language="de").split())
    assert "Was anders wäre: - income: 38.500 (jetzt 31.000)" in text
    assert "jetzt 25 %, mit diesen Änderungen 59 %" in text
    assert "Die Entscheidung würde granted lauten" in text
    assert "99,5 %" in applicants().letter(2, language="de")


def test_a_suggestion_that_not_all_checks_accept_is_not_certain():
    text = " ".join(applicants().letter(2).split())
    assert (
        "Only 67 % of the independent checks find the result realistic: the suggestion is not certain."
        in text
    )


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_status_has_a_text_of_its_own(status, language):
    row = 0 if status in ("found", "relaxed") else 1
    statuses = ["found", "infeasible", "found"]
    statuses[row] = status
    letter = " ".join(applicants(status=statuses).letter(row, language=language).split())
    messages = built_in(language)["messages"]
    texts = {name: fill(messages[name], {"target": "granted"}) for name in STATUSES}
    assert [name for name, text in texts.items() if text in letter] == [status]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("i", [0, 1])
def test_a_letter_makes_no_legal_claim(language, i):
    text = " ".join(applicants().letter(i, language=language).split())
    messages = built_in(language)["messages"]
    assert messages["not_a_promise"] in text
    assert messages["not_a_notice"] in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogues_have_the_same_messages_with_the_same_placeholders(language):
    english, own = built_in("en"), built_in(language)
    for section in ("messages", "format"):
        assert own[section].keys() == english[section].keys()
        for name, text in own[section].items():
            if isinstance(text, str):
                assert set(_PLACEHOLDER.findall(text)) == set(_PLACEHOLDER.findall(english[section][name])), (
                    name
                )


def test_a_catalogue_of_the_user_adds_a_language_and_names(tmp_path):
    path = tmp_path / "pl.toml"
    path.write_text(
        'base = "en"\nlanguage = "pl"\n[messages]\nfound = "Decyzja byłaby: {target}."\n'
        '[format]\nthousands = " "\n[features]\nincome = "dochód"\n[outcomes]\ngranted = "przyznany"\n'
        '[values.job]\nclerk = "urzędnik"\n',
        encoding="utf-8",
    )
    rows = pd.DataFrame({"income": [31000], "job": ["nurse"]})
    result = applicants(
        rows=rows,
        answers=pd.DataFrame({"income": [38500], "job": ["clerk"]}),
        of=[0],
        schema=schema_of(rows),
        figures=applicants().figures.iloc[:1],
    )
    text = result.letter(0, language=path)
    assert "Decyzja byłaby: przyznany." in text
    assert "- job: urzędnik (now nurse)" in text
    assert "- dochód: 38500 (now 31000)" in text
    text = applicants().letter(0, language=str(path))
    assert "- dochód: 38 500 (now 31 000)" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[messages]\nfuond = 'x'", "did you mean 'found'"),
        ("[messages]\nfound = '{secret}'", "has no placeholder {secret}"),
        ("[messages]\nfound = 3", "must be a text; got 3"),
        ("base = 'xx'", "must be one of en, de"),
        ("[massages]\nfound = 'x'", "did you mean 'messages'"),
        ("[format]\nmonths = ['May']", "must be 12 texts"),
        ("[values]\njob = 'x'", "must be a table of texts"),
        ("not toml", "cannot be read as TOML"),
    ],
)
def test_a_bad_catalogue_is_refused_with_its_problem(text, message, tmp_path):
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        read_catalogue(tmp_path / "own.toml")


def test_an_unknown_language_and_an_unknown_format_are_refused():
    with pytest.raises(InvalidInputError, match="`language` must be en, de, or the path"):
        applicants().letter(0, language="xx")
    with pytest.raises(InvalidInputError, match="`format` must be 'text' or 'html'; got 'pdf'"):
        applicants().letter(0, format="pdf")


HOSTILE = '<script>alert("1")</script>\n\nDear Ann, you owe us {{ 7 * 7 }}\u202e'


def hostile():
    rows = pd.DataFrame({HOSTILE: ["a", "b"]}, index=[HOSTILE, "ok"])
    answers = pd.DataFrame({HOSTILE: [HOSTILE]})
    return build(rows, answers, [0], outcome=HOSTILE, target=HOSTILE, figures=applicants().figures.iloc[:1])


def test_html_escapes_every_value_and_stays_well_formed():
    page = Page(hostile().letter(0, format="html").partition("\n")[2])
    assert page.all("script") == []
    assert '<script>alert("1")</script> Dear Ann, you owe us {{ 7 * 7 }}' in page.all("h1")[0][1]
    assert page.all("html")[0][0]["lang"] == "en"


def test_a_value_cannot_look_like_a_line_of_a_text_letter():
    lines = hostile().letter(0).splitlines()
    seen = '<script>alert("1")</script> Dear Ann, you owe us {{ 7 * 7 }}'
    assert lines[0] == f"What would change the decision about: {seen}"
    assert lines[2] == f"Reference: {seen}"
    assert "\u202e" not in "".join(lines)


def test_a_template_of_the_user_decides_what_the_letter_says(tmp_path):
    path = tmp_path / "own.html"
    path.write_text("<p>{{ row }}: {{ target }}</p>{% for c in needed %}<i>{{ c.after }}</i>{% endfor %}")
    assert applicants().letter(0, path, "de", "html") == "<p>Ann: granted</p><i>38.500</i><i>3</i>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ unknown_name }}", "'unknown_name' is undefined"),
        ("{% if %}", "line 1"),
        ("{{ ''.__class__.__mro__ }}", "cannot be used"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% include '/etc/passwd' %}", "cannot be used"),
    ],
)
def test_a_bad_template_is_refused(text, message, tmp_path):
    path = tmp_path / "own.txt"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        applicants().letter(0, path)


def test_a_template_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="must be the path of a Jinja2 template"):
        applicants().letter(0, tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("target", "german"),
    [("at least 2.5", "mindestens 2,5"), ("at most 3", "höchstens 3"), ("5 to 6.5", "5 bis 6,5")],
)
def test_the_target_of_a_predicted_number_is_translated(target, german):
    rows = pd.DataFrame({"a": [1.0]})
    figures = applicants().figures.iloc[:1].assign(prediction=2.75, probability=np.nan)
    result = build(rows, rows + 1, [0], target=target, labels=(), figures=figures)
    text = " ".join(result.letter(0, language="de").split())
    assert f"Gewünscht: {german}." in text
    assert "Die Schätzung wäre 2,75" in text


def test_years_and_missing_values_are_written_as_such():
    assert read_catalogue("de").number("1999") == "1999"
    rows = pd.DataFrame({"job": [None]}, dtype=object)
    result = build(rows, pd.DataFrame({"job": ["nurse"]}), [0], figures=applicants().figures.iloc[:1])
    assert "- job: nurse (jetzt nicht bekannt)" in result.letter(0, language="de")
