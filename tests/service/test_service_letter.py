"""Letters over HTTP: the text of the library, about the row of the request."""

import pandas as pd
import pytest

from serving import AT, Client, instances, people


@pytest.fixture(scope="module")
def declined():
    explainer, frame = people()
    return frame[explainer.predict(frame) == "no"][:1].set_axis(["A-17"], axis=0)


@pytest.mark.parametrize("format", ["text", "html"])
@pytest.mark.parametrize("language", ["en", "de"])
def test_the_letter_is_that_of_the_library(declined, format, language):
    (row,) = instances(declined)
    expected = (
        people()[0].explain(declined, "yes", locked=["job"]).letter(0, language=language, format=format)
    )
    body = {"instance": row, "target": "yes", "parameters": {"locked": ["job"]}, "reference": "A-17"}
    with Client() as client:
        answer = client.post(f"{AT}:letter", body | {"language": language, "format": format})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"letter": expected}
    assert "A-17" in expected


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"language": "../../etc/passwd.toml"}, "`language` must be one of 'en', 'de'"),
        ({"format": "pdf"}, "`format` must be one of"),
        ({"target": "opposite"}, "`target` must be one of the outcomes"),
        ({"reference": 101 * "x"}, "`reference`"),
        ({"template": "letter.j2"}, "unknown names: 'template'"),
    ],
)
def test_a_letter_cannot_be_asked_for_in_another_way(declined, change, text):
    body = {"instance": instances(declined)[0], "target": "yes"}
    with Client() as client:
        answer = client.post(f"{AT}:letter", body | change)
    assert answer.status_code == 422
    assert text in answer.json()["error"]


def test_a_row_that_cannot_be_read_has_a_letter_that_says_so(declined):
    (row,) = instances(declined)
    with Client() as client:
        answer = client.post(f"{AT}:letter", {"instance": row | {"income": "much"}, "target": "yes"})
    assert answer.status_code == 200
    unread = pd.DataFrame([row]).astype({"income": object}).assign(income="much").set_axis(["–"], axis=0)
    assert answer.json()["letter"] == people()[0].explain(unread, "yes").letter(0)
