"""The what-if page for everybody: axe-core finds nothing, and the keyboard reaches all in a few steps."""

import numpy as np
import pandas as pd
import pytest

from accessibility import violations
from explaining import stand_in
from serving import running
from visiting import Visit

PHONE = {"width": 390, "height": 844, "is_mobile": True, "has_touch": True}
LOOKS = [{}, {"color_scheme": "dark"}, PHONE, PHONE | {"color_scheme": "dark"}]
NAMES = ["light", "dark", "phone", "dark phone"]


def unfold_all(visit):
    visit.unfold()
    for summary in ("#analysts", ".main [data-key=figures]", ".main .unchanged", ".rules"):
        if visit.page.locator(f"{summary}:not([open]) > summary").count():
            visit.page.click(f"{summary} > summary")
    if visit.page.locator(".main .change").count():
        visit.page.get_by_role("button", name="Limit of").first.click()
        visit.page.wait_for_selector(".main .usual", state="attached")


@pytest.mark.browser
@pytest.mark.parametrize(
    "look", [pytest.param(look, marks=pytest.mark.slow if look else ()) for look in LOOKS], ids=NAMES
)
def test_axe_finds_nothing_on_a_page_with_an_answer(browser, service, look):
    visit = Visit(browser, service, **look).open()
    assert violations(visit.page) == []
    unfold_all(visit)
    assert violations(visit.page) == []
    visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("look", LOOKS, ids=NAMES)
def test_axe_finds_nothing_on_a_page_without_an_answer(browser, service, look):
    visit = Visit(browser, service, **look).open()
    visit.unfold()
    visit.page.evaluate(
        "document.querySelectorAll('#features [aria-pressed=false]').forEach((lock) => lock.click())"
    )
    visit.wait()
    visit.page.locator(".way-out button").first.wait_for()
    assert "no realistic way" in visit.headline
    assert violations(visit.page) == []
    visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("look", LOOKS, ids=NAMES)
def test_axe_finds_nothing_on_a_page_of_sixty_columns(browser, tmp_path, look):
    columns = [f"sensor_{i}" for i in range(60)]
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 60)).round(2), columns=columns)
    explainer = stand_in(frame, push=dict.fromkeys(columns[:20], 1.0), labels=("fail", "pass"))
    failing = frame[explainer.predict(frame) == "fail"][:3]
    with running(tmp_path, {"wide": explainer}, rows={"wide": failing}) as server:
        visit = Visit(browser, server.address, **look).open()
        assert violations(visit.page) == []
        unfold_all(visit)
        assert violations(visit.page) == []
        assert visit.widths()[0] == visit.widths()[1]
        visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
def test_axe_finds_nothing_where_the_page_waits_or_fails_or_asks_for_a_token(
    browser, service, explainer, tmp_path
):
    visit = Visit(browser, service)
    visit.page.route("**/*:explain", lambda route: None)
    visit.page.goto(service)
    visit.page.wait_for_selector("#headline[data-status=waiting]")
    assert violations(visit.page) == []
    visit.page.route("**/v1/models", lambda route: route.fulfill(status=500, json={"error": "It failed."}))
    visit.page.goto(f"{service}?again")
    visit.page.get_by_text("It failed.").wait_for()
    assert violations(visit.page) == []
    visit.context.close()
    with running(tmp_path, {"loans": explainer}, token="a-token-for-the-tests") as server:
        visit = Visit(browser, server.address)
        visit.page.goto(server.address)
        visit.page.wait_for_selector("#token[open]")
        assert violations(visit.page) == []
        visit.context.close()


def stops(visit, most=80):
    """Return what the tab key reaches, in order: the name of each control, until it leaves the page."""
    named = """() => {
      const one = document.activeElement;
      return one === document.body ? '' : one.id || one.dataset.key || one.textContent.trim().slice(0, 30);
    }"""
    found = []
    for _ in range(most):
        visit.page.keyboard.press("Tab")
        name = visit.page.evaluate(named)
        if name == "" or (found and name == found[0]):
            return found
        found.append(name)
    raise AssertionError(f"more than {most} stops: {found}")


@pytest.mark.browser
def test_the_tab_order_is_short_and_answers_come_first(visit):
    visit.page.wait_for_selector(".main .usual", state="attached")
    changes = visit.page.locator(".main .change").count()
    found = stops(visit)
    assert found[0] == "Skip to the answer"
    holds = [name for name in found if name.startswith("lock-")]
    assert len(holds) == changes  # the buttons of a change are one stop
    assert found.index(holds[0]) <= 2
    assert len(found) <= changes + 15
    assert visit.page.locator(".main .hold button").count() >= 2 * changes


@pytest.mark.browser
def test_arrow_keys_go_through_the_buttons_of_a_change(visit):
    bar = visit.page.locator(".main .hold").first
    names = bar.locator("button").all_inner_texts()
    bar.locator("button").first.focus()
    seen = []
    for _ in names:
        seen.append(visit.page.evaluate("document.activeElement.textContent"))
        visit.page.keyboard.press("ArrowRight")
    assert seen == names
    assert visit.page.evaluate("document.activeElement.textContent") == names[0]


@pytest.mark.slow
@pytest.mark.browser
def test_focus_is_never_lost(visit):
    """After each click on a control of an answer, the focus is on an element of the page."""
    visit.page.wait_for_selector(".main .usual", state="attached")
    for find in (
        lambda: visit.page.get_by_role("button", name="can't change").last,
        lambda: visit.page.locator("[data-held]").first,
        lambda: visit.page.get_by_role("button", name="Show this way").first,
    ):
        find().focus()
        visit.page.keyboard.press("Enter")
        visit.wait()
        assert visit.page.evaluate("document.activeElement !== document.body")
