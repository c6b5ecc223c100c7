"""The first thing that the what-if page says: the favourable answer, what it needs, and how sure it is."""

import json

import pytest

from visiting import Visit

NAME = "loans"


@pytest.mark.browser
def test_the_page_opens_on_a_rejected_row_and_answers_for_the_favourable_outcome(visit, explainer, first):
    expected = explainer.explain(first, "granted", k=3)
    before = expected.verdicts["probability"].iloc[0]
    after = expected.figures["probability"].iloc[0]
    text = f"Rejected, {before:.0%} → would be granted, {after:.0%}, if …".replace("%", " %")
    assert visit.headline == text
    assert "a guess from its name" in visit.text("#asked")
    answer = json.loads(expected.to_json())["rows"][0]["counterfactuals"][0]
    roles = {role: [] for role in ("needed", "accompanying")}
    for change in answer["changes"]:
        roles[change["role"]].append(change["feature"])
    assert visit.changed("Needed for the decision") == roles["needed"] != []
    assert visit.changed("Go along to stay realistic") == roles["accompanying"]
    assert visit.page.locator(".way-card").count() == len(expected.answers) - 1


@pytest.mark.slow
@pytest.mark.browser
def test_a_granted_row_is_not_asked_how_to_be_rejected(visit, explainer, rows):
    visit.page.select_option("#rows", "0")
    visit.page.wait_for_selector("#headline[data-status=already]")
    chance = explainer.predict_proba(rows[:1])["granted"].iloc[0]
    assert visit.headline == f"Granted, {100 * chance:.0f} %. Nothing needs to change."
    assert visit.page.locator(".change").count() == 0


@pytest.mark.browser
def test_a_feature_that_cannot_change_is_kept_at_once_and_released_with_the_keyboard(visit):
    name = visit.changed("Needed for the decision")[0]
    visit.page.get_by_role("button", name=f"{name} can't change", exact=True).focus()
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("#cards.outdated")
    visit.wait()
    assert visit.page.locator(f"[data-feature={name}]").count() == 0
    assert visit.page.evaluate("document.activeElement.dataset.held") == name
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector(f"[data-feature={name}]")
    assert visit.page.evaluate("document.activeElement.id") == "answers"


@pytest.mark.browser
@pytest.mark.parametrize(
    ("judged", "text", "level"),
    [
        pytest.param(1.0, "✓ 3 of 3 checks", "sure", marks=pytest.mark.slow),
        (2 / 3, "! 2 of 3 checks", "unsure"),
        pytest.param(1 / 3, "! doubtful: 1 of 3 checks", "unsure", marks=pytest.mark.slow),
        pytest.param(0.0, "! doubtful: 0 of 3 checks", "unsure", marks=pytest.mark.slow),
        pytest.param(None, "– not checked independently", "unknown", marks=pytest.mark.slow),
    ],
)
def test_the_badge_says_what_the_independent_checks_say(browser, service, judged, text, level):
    visit = Visit(browser, service)

    def with_judges(route):
        route.fulfill(json=route.fetch().json() | {"judges": 3})

    def with_opinion(route):
        content = route.fetch().json()
        for answer in content["explanations"][0]["counterfactuals"]:
            answer |= {"judged": judged, "lasting": 14 / 15}
        content["explanations"][0]["reason"] = (
            "one way only: no counterfactual was found that needs other changes"
        )
        route.fulfill(json=content)

    visit.page.route(f"**/v1/models/{NAME}", with_judges)
    visit.page.route("**/*:explain", with_opinion)
    visit.open()
    badge = visit.page.locator(".how-sure .verdict")
    assert badge.inner_text() == text
    assert level in badge.get_attribute("class").split()
    assert "plausible" not in visit.text("#cards .main")
    assert "93.3\u00a0% of the retrained models" in visit.text(".sure-lines")
    assert "One way only" in visit.text(".others")
    visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
def test_another_way_is_shown_in_full(visit, explainer, first):
    expected = json.loads(explainer.explain(first, "granted", k=3).to_json())["rows"][0]["counterfactuals"]
    visit.page.get_by_role("button", name="Show this way").first.click()
    shown = visit.page.locator(".main .change").all()
    assert {item.get_attribute("data-feature") for item in shown} == {
        change["feature"] for change in expected[1]["changes"]
    }
