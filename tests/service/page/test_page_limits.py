"""Holding features on the what-if page: what cannot change, go up or go down; and ways out."""

import json
import re
from itertools import combinations

import pandas as pd
import pytest

from serving import running
from visiting import Visit

NAME = "loans"


def asked(visit):
    """Return the parameters of the requests for explanations, in order."""
    visit.bodies = []
    visit.page.on(
        "request",
        lambda request: (
            request.url.endswith(":explain") and visit.bodies.append(json.loads(request.post_data))
        ),
    )
    return visit.bodies


def rising(visit):
    """Return a change that goes up, and its feature."""
    item = visit.page.locator(".main .change", has=visit.page.get_by_role("button", name="can't go up")).first
    return item.get_attribute("data-feature")


@pytest.mark.browser
def test_a_feature_that_cannot_go_up_is_asked_for_at_once_and_stays(visit, explainer, first):
    bodies, name = asked(visit), rising(visit)
    visit.page.get_by_role("button", name=f"{name} can't go up", exact=True).click()
    visit.page.wait_for_selector("#cards.outdated")
    visit.wait()
    assert [body["parameters"]["decreasing"] for body in bodies] == [[name]] * len(bodies) != []
    assert visit.page.locator(f"[data-feature={name}] .way:has-text('▲')").count() == 0
    chip = visit.page.locator(f"[data-held={name}]")
    assert chip.inner_text() == f"{name} can't go up ✕"
    assert visit.page.evaluate("document.activeElement.dataset.held") == name
    chip.click()
    visit.page.wait_for_selector(f"[data-feature={name}] .way:has-text('▲')")
    assert bodies[-1]["parameters"]["decreasing"] == []


@pytest.mark.slow
@pytest.mark.browser
def test_a_limit_beside_a_change_is_asked_for_at_once(visit):
    bodies, name = asked(visit), rising(visit)
    item = visit.page.locator(f".main [data-feature={name}]")
    most = float(item.locator("mark").inner_text().replace(",", "")) - 1
    item.get_by_role("button", name=f"Limit of {name}").click()
    assert visit.page.evaluate("document.activeElement.labels[0].textContent") == "at least"
    item.get_by_role("button", name="Ask with it").click()
    assert "Enter at least one number." in item.inner_text()
    assert bodies == []
    item.get_by_label("at most").fill(f"{most:g}")
    item.get_by_label("at most").press("Enter")
    visit.page.wait_for_selector("#cards.outdated")
    visit.wait()
    assert bodies[0]["parameters"]["ranges"] == {name: [None, most]}
    shown = visit.page.locator(f".main [data-feature={name}] mark")
    if shown.count():
        assert float(shown.inner_text().replace(",", "")) <= most
    assert f"{name} at most {most:,.0f}" in visit.text("#kept")


@pytest.fixture
def stuck(browser, explainer, first, tmp_path):
    """Yield a visit of a service with one row."""
    with running(tmp_path, {NAME: explainer}, rows={NAME: first}) as server:
        visit = Visit(browser, server.address).open()
        yield visit
        visit.context.close()
        assert visit.complaints == []


def hold_all(visit):
    """Lock every feature that can be locked, and wait for the answer about all of them."""
    visit.unfold()
    visit.page.evaluate(
        "document.querySelectorAll('#features [aria-pressed=false]').forEach((lock) => lock.click())"
    )
    visit.wait()


def smallest_sets(explainer, row, names):
    """Return the smallest sets of names that must be free for an answer, by trying them all."""
    for size in range(1, 4):
        sets = [set(free) for free in combinations(names, size)]
        locked = [[name for name in names if name not in free] for free in sets]
        rows = pd.concat([row] * len(sets), ignore_index=True)
        status = explainer.explain(rows, "granted", locked=locked, diagnose=False).status["status"]
        found = [free for free, one in zip(sets, status, strict=True) if one == "found"]
        if found:
            return found
    raise AssertionError("more than three")


@pytest.mark.slow
@pytest.mark.browser
def test_the_smallest_set_of_locks_is_named_and_its_answer_is_one_click_away(stuck, explainer, first):
    names = [name for name in first if name not in ("age", "sex")]
    hold_all(stuck)
    assert stuck.headline.endswith("→ no realistic way to granted was found.")
    expected = smallest_sets(explainer, first, names)
    size = len(expected[0])
    stuck.page.locator(".way-out button").first.wait_for()
    text = stuck.page.locator(".way-out button").first.inner_text()
    assert set(re.findall(r"[Ll]et (\w+) change", text)) in expected
    why = f"these {size} together" if size > 1 else "One of your limits blocks"
    assert why in stuck.text(".ways")
    promised = stuck.page.locator(".way-out span").first.inner_text().replace("\u00a0", " ")
    stuck.page.locator(".way-out button").first.click()
    stuck.page.wait_for_selector("#headline[data-status=found]")
    stuck.wait()
    assert promised.split("→ ")[1].split(":")[0] in stuck.headline
    assert stuck.page.locator("#kept [data-held]").count() == len(names) - size


@pytest.mark.slow
@pytest.mark.browser
def test_limits_that_do_not_block_are_not_blamed(browser, service):
    visit = Visit(browser, service)

    def blocked(route):
        content = route.fetch().json()
        for one in content["explanations"]:
            one |= {
                "status": "infeasible",
                "reason": "the data has no such row",
                "counterfactuals": [],
                "misses": [],
            }
        route.fulfill(json=content)

    visit.page.route("**/*:explain", blocked)
    visit.page.goto(service)
    visit.page.get_by_text("You hold nothing on this page").wait_for()
    visit.unfold().page.get_by_role("button", name="Lock income").click()
    visit.page.get_by_text("Your limits do not block: without all of them").wait_for()
    visit.context.close()
