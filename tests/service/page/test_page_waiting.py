"""While the what-if page waits: a skeleton, answers as they come, and the old answer until the new one."""

import json

import numpy as np
import pytest

from plausiflow.explanations.advantages import find_advantages
from visiting import Visit


class Gate:
    """Requests for explanations that wait until they are let through."""

    def __init__(self, visit, pattern="**/*:explain"):
        self.visit, self.waiting = visit, []
        visit.page.route(pattern, lambda route: self.waiting.append(route))

    def open(self):
        """Let the next request through, once it is there."""
        while not self.waiting:
            self.visit.page.wait_for_timeout(10)
        route = self.waiting.pop(0)
        route.continue_()
        return route.request.post_data_json["parameters"]["k"]


@pytest.mark.browser
def test_answers_come_one_after_the_other_and_the_old_one_stays(browser, service, visit):
    gate = Gate(visit)
    old = visit.text("#cards")
    name = visit.changed("Needed for the decision")[0]
    visit.page.get_by_role("button", name=f"{name} can't change", exact=True).click()
    visit.page.wait_for_selector("#cards.outdated[aria-busy=true]")
    assert visit.text("#cards") == old
    assert gate.open() == 1
    visit.page.wait_for_selector("#cards:not(.outdated) .main")
    assert visit.page.locator(f".main [data-feature={name}]").count() == 0
    assert visit.text(".others .skeleton") == "Looking for other ways …"
    assert visit.page.locator(".way-card").count() == 0
    assert gate.open() == 3
    visit.wait()
    assert visit.page.locator(".others .skeleton").count() == 0


@pytest.mark.slow
@pytest.mark.browser
def test_a_skeleton_is_there_until_the_first_answer(browser, service):
    visit = Visit(browser, service)
    gate = Gate(visit, "**/*:predict")
    visit.page.goto(service)
    visit.page.wait_for_selector("#about:has-text('loans')")
    assert visit.page.locator("#cards .skeleton .line").count() == 4
    gate.waiting.pop(0).continue_()
    visit.wait()
    assert visit.page.locator("#cards > .skeleton").count() == 0
    visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
def test_another_row_leaves_the_old_answer_until_the_new_one(visit, rows, explainer):
    gate, old = Gate(visit), visit.headline
    place = next(i for i in range(3, len(rows)) if explainer.predict(rows[i : i + 1]).iloc[0] == "rejected")
    visit.page.select_option("#rows", str(place))
    visit.page.wait_for_selector("#cards.outdated")
    assert visit.headline == old
    gate.open()
    visit.page.wait_for_selector("#cards:not(.outdated)")
    chance = explainer.predict_proba(rows[place : place + 1])["granted"].iloc[0]
    assert visit.headline.startswith(f"Rejected, {100 * chance:.0f} %")


@pytest.mark.slow
@pytest.mark.browser
def test_focus_and_what_is_unfolded_or_typed_stay_when_more_answers_come(visit):
    visit.unfold()
    gate = Gate(visit)
    visit.page.click("#ask")
    assert gate.open() == 1
    visit.page.wait_for_selector("#cards:not(.outdated) .main")
    item = visit.page.locator(".main .change", has=visit.page.get_by_role("button", name="Limit of")).first
    name = item.get_attribute("data-feature")
    item.get_by_role("button", name=f"Limit of {name}").click()
    item.get_by_label("at most").fill("12")
    visit.page.click("summary:has-text('Cost and density')")
    item.get_by_label("at most").focus()
    assert gate.open() == 3
    visit.wait()
    assert visit.page.evaluate("document.activeElement.dataset.key") == f"most-{name}"
    assert visit.page.evaluate("document.activeElement.value") == "12"
    assert visit.page.locator(".density").is_visible()


@pytest.mark.slow
@pytest.mark.browser
def test_the_answer_that_is_read_already_stays_when_others_come(browser, service, rows, explainer):
    """A search for several answers may put another one first; the page must not take away what is read."""
    status = explainer.explain(rows, "granted").status["status"]
    found = [i for i in range(len(rows)) if status.iloc[i] == "found"]
    visit = Visit(browser, service).open()
    for place in found:
        visit.page.select_option("#rows", str(place))
        visit.page.wait_for_selector("#cards.outdated")
        visit.wait()
        changes = explainer.explain(rows[place : place + 1], "granted").changes
        shown = {one.get_attribute("data-feature") for one in visit.page.locator(".main .change").all()}
        assert shown == set(changes["feature"]), place
        texts = [visit.page.locator(".main").inner_text(), *visit.page.locator(".way-card").all_inner_texts()]
        assert len(set(texts)) == len(texts) <= 3
    visit.context.close()


def needs(way):
    """Return the changes that a decision needs and their directions; all changes if none is needed alone."""
    changes = [one for one in way["changes"] if one["role"] == "needed"] or way["changes"]

    def direction(one):
        numbers = all(isinstance(one[end], float | int) for end in ("from", "to"))
        return np.sign(one["to"] - one["from"]) if numbers else one["to"]

    return {(one["feature"], direction(one)) for one in changes}


def listed(result):
    return json.loads(result.to_json())["rows"][0]


@pytest.mark.slow
@pytest.mark.browser
def test_other_ways_need_other_changes_and_say_what_they_are_best_at(visit, rows, explainer):
    merge = "async ([one, all]) => (await import('./static/ways.js')).otherWays(one, all, 3)"
    differ = 0
    for place in np.flatnonzero(explainer.explain(rows, "granted").status["status"] == "found"):
        row = rows[place : place + 1]
        first = listed(explainer.explain(row, "granted"))["counterfactuals"][0]
        several = explainer.explain(row, "granted", k=3)
        everything = listed(several)
        ways = visit.page.evaluate(merge, [first, everything])["counterfactuals"]
        assert ways[0]["values"] == first["values"]
        needed = [needs(way) for way in ways]
        assert needed[0] not in needed[1:]
        if first["values"] == everything["counterfactuals"][0]["values"]:
            found = find_advantages(several.of, several.figures)
            if len(ways) == len(found):
                assert [way["advantages"] for way in ways] == found
        else:
            differ += 1
            best = min(len(way["changes"]) for way in ways)
            for way in ways:
                assert ("fewest changes" not in way["advantages"]) or len(way["changes"]) == best
    assert differ > 0
