"""The link of the what-if page restores the row, what is held and the target; the service never sees it."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from serving import running
from visiting import Visit

NAME = "loans"


def copied(visit, button):
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.page.get_by_role("button", name=button, exact=True).click()
    visit.page.locator("#take [role=status]:has-text('Copied')").wait_for()
    return visit.page.evaluate("navigator.clipboard.readText()")


def state(visit):
    visit.unfold()
    changes = [item.get_attribute("data-feature") for item in visit.page.locator(".main .change").all()]
    held = sorted(visit.page.locator("[data-held]").all_inner_texts())
    return visit.headline, changes, held, visit.field("income").input_value(), visit.text("#asked")


@pytest.mark.slow
@pytest.mark.browser
def test_a_link_restores_row_edits_limits_and_answer_and_never_reaches_the_service(
    browser, explainer, rows, tmp_path
):
    with running(tmp_path, {NAME: explainer}, rows={NAME: rows}) as server:
        visit = Visit(browser, server.address).open()
        visit.page.select_option("#rows", "4")
        visit.unfold().field("income").fill("41234")
        visit.page.get_by_role("button", name="Lock job").click()
        visit.page.get_by_role("button", name="Range of loan_amount in an answer").click()
        visit.page.get_by_label("from", exact=True).locator("visible=true").fill("2000")
        visit.page.get_by_label("goes", exact=True).locator("visible=true").select_option("down")
        visit.ask(count=2)
        link, expected = copied(visit, "Copy link"), state(visit)
        assert expected[2] == [
            "job can't change ✕",
            "loan_amount at least 2,000 ✕",
            "loan_amount can't go up ✕",
        ]
        visit.context.close()
        other = Visit(browser, link).open()
        other.page.wait_for_selector("#headline[data-status]:not([data-status=waiting])")
        other.wait()
        assert state(other) == expected
        assert other.text("#linked") == ""
        assert other.page.input_value("#rows") == "4"
        assert other.page.input_value("#count") == "2"
        other.context.close()
        log = server.log.read_text()
    parts = parse_qs(urlsplit(link).fragment)
    assert (parts["row"], json.loads(parts["values"][0])) == (["5"], {"income": 41234})
    assert urlsplit(link).query == ""
    assert "41234" not in log
    assert "loan_amount" not in log


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(
    ("fragment", "text"),
    [
        ("model=loans&row=2&check=other", "The row of this link has changed"),
        ('model=loans&lock="planet"&lock="age"&check=0', "does not have or never changes: planet and age"),
        ("model=houses", "the model houses, which this service does not have"),
        ("model=loans&row=9999&check=0", "The row of this link has changed"),
        ("model=loans&check=0&target=%7B&values=[1&range=[1,2", "The row of this link has changed"),
    ],
)
def test_a_link_that_does_not_fit_says_so_and_the_page_still_answers(browser, service, fragment, text):
    visit = Visit(browser, f"{service}#{fragment}").open()
    assert text in visit.text("#linked")
    assert "granted" in visit.headline.lower()
    assert visit.complaints == []
    visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
def test_a_link_that_is_pasted_into_the_open_page_is_followed(visit, service):
    before = visit.headline
    visit.page.evaluate("location.hash = 'model=loans&row=1&check=x'")
    visit.page.wait_for_selector("#headline[data-status=already]")
    assert visit.headline != before


@pytest.mark.slow
@pytest.mark.browser
def test_the_copied_text_is_the_answer_in_words(visit, explainer, first):
    text = copied(visit, "Copy as text")
    sentence = explainer.explain(first, "granted", k=3).sentences.iloc[0]
    assert text.replace("\u00a0", " ") == f"{visit.headline}\n{sentence}"


@pytest.mark.slow
@pytest.mark.browser
def test_paper_has_the_answer_and_no_controls(visit):
    visit.page.emulate_media(media="print")
    assert visit.page.locator("#headline").is_visible()
    assert visit.page.locator(".main .change").first.is_visible()
    assert visit.page.locator(".sure-lines").is_visible()
    assert visit.page.locator("button:visible, input:visible, select:visible, summary:visible").count() == 0


@pytest.mark.slow
@pytest.mark.browser
def test_the_link_is_copied_where_there_is_no_clipboard(browser, service):
    """Browsers offer it only over https and on the same machine."""
    visit = Visit(browser, service)
    visit.page.add_init_script("delete Navigator.prototype.clipboard")
    visit.open()
    visit.page.get_by_role("button", name="Copy link").click()
    visit.page.get_by_text("Copied the link.").wait_for()
    assert visit.page.evaluate("document.activeElement.id") == "copy-link"
    visit.page.focus("#search")
    visit.page.keyboard.press("Control+V")
    assert "#model=loans&row=3" in visit.page.input_value("#search")
    visit.context.close()
