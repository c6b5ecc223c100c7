"""Walks through the what-if page, each as one person takes it, with pictures of the steps.

``PLAUSIFLOW_IMAGES=docs/images pytest tests/service/page -m slow -k walk`` updates the pictures of the
documentation.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import plausiflow as pf
from explaining import stand_in
from serving import running
from visiting import Visit, photograph

NAME = "loans"
LARGEST_IMAGE = 300_000
NOTE_PRINTING = "window.printed = 0; window.print = () => { window.printed += 1; };"


@pytest.fixture
def keep_picture(tmp_path):
    """Save a picture of a step, for the documentation if it is asked for."""
    folder = Path(os.environ.get("PLAUSIFLOW_IMAGES", tmp_path))

    def keep(visit, name, most=2000):
        photograph(visit, folder / f"{name}.png", most)
        assert (folder / f"{name}.png").stat().st_size < LARGEST_IMAGE

    return keep


def holdable(explainer, row):
    """Return a change that the decision needs, without which there is another answer, or None."""
    changes = explainer.explain(row, "granted").changes
    for name in changes["feature"][changes["role"] == "needed"]:
        if explainer.explain(row, "granted", locked=[name]).status["status"].iloc[0] == "found":
            return name
    return None


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    """Yield the address of a service with the explainer that people use, its explainer and its rows."""
    train, test = pf.load_table("loans").split(600, 40)
    rules = [pf.Immutable("age", "sex"), pf.Increasing("education")]
    explainer = pf.Explainer(pf.LinearClassifier(), constraints=rules).fit(train.x, train.y)
    rows = test.x.reset_index(drop=True)
    rejected = np.flatnonzero(explainer.predict(rows) == "rejected")
    first = next(i for i in rejected if holdable(explainer, rows[i : i + 1]))
    rows = pd.concat([rows[first : first + 1], rows.drop(first)]).reset_index(drop=True)
    with running(tmp_path_factory.mktemp("office"), {NAME: explainer}, rows={NAME: rows}) as server:
        yield server.address, explainer, rows


def declined(explainer, rows):
    """Return the row on which the page opens."""
    at = int(np.flatnonzero(explainer.predict(rows) == "rejected")[0])
    return at, rows[at : at + 1].reset_index(drop=True)


few_rows = pytest.mark.filterwarnings("ignore::plausiflow.densities.PlausibilityWarning")


@pytest.mark.slow
@pytest.mark.browser
@few_rows
def test_walk_of_an_officer(office, browser, keep_picture):
    """The first answer is there without a click; a feature is held; the new answer keeps it."""
    address, explainer, rows = office
    visit = Visit(browser, address).open()
    _, row = declined(explainer, rows)
    first = explainer.explain(row, "granted")
    chance = 100 * first.figures["probability"].iloc[0]
    assert visit.headline.startswith("Rejected, ")
    assert f"would be granted, {chance:.0f} %, if …" in visit.headline
    assert "checks" in visit.text(".how-sure .verdict")
    name = holdable(explainer, row)
    assert name in visit.changed("Needed for the decision")
    visit.page.get_by_role("button", name=f"{name} can't change", exact=True).click()
    visit.page.wait_for_selector("#cards.outdated")
    visit.wait()
    second = explainer.explain(row, "granted", locked=[name])
    assert set(visit.changed("Needed for the decision") + visit.changed("Go along to stay realistic")) == set(
        second.changes["feature"]
    )
    assert name not in second.changes["feature"].tolist() != []
    visit.page.wait_for_selector(".main .usual", state="attached")
    keep_picture(visit, "walk-officer")
    assert visit.complaints == []
    visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
@few_rows
def test_walk_of_a_customer(office, browser, keep_picture):
    """The letter about the answer is printed, in two languages, and holds nothing else."""
    address, explainer, rows = office
    at, row = declined(explainer, rows)
    visit = Visit(browser, address)
    visit.page.add_init_script(NOTE_PRINTING)
    visit.open()
    named = row.set_axis([f"row {at + 1}"], axis=0)
    for language in ("en", "de"):
        visit.page.select_option("#language", language)
        visit.page.get_by_role("button", name="Print letter").click()
        visit.page.locator(f"#letter[lang={language}]:not(:empty)").wait_for(state="attached")
        expected = explainer.explain(named, "granted").letter(0, language=language)
        assert visit.page.locator("#letter").text_content() == expected
    assert visit.page.evaluate("printed") == 2
    assert visit.page.locator("#letter").is_hidden()
    visit.page.emulate_media(media="print")
    assert visit.page.locator("#letter").is_visible()
    assert visit.page.locator("header:visible, main:visible, button:visible").count() == 0
    keep_picture(visit, "walk-letter", 900)
    visit.page.emulate_media(media="screen")
    visit.page.get_by_role("button", name="Print page").click()
    visit.page.emulate_media(media="print")
    assert visit.page.locator("#headline").is_visible()
    assert visit.page.locator("#letter").is_hidden()
    assert visit.complaints == []
    visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
def test_walk_through_sixty_columns(browser, tmp_path, keep_picture):
    """One column of sixty is found, edited and held, and the answer follows."""
    columns = [f"sensor_{i}" for i in range(60)]
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 60)).round(2), columns=columns)
    explainer = stand_in(frame, push=dict.fromkeys(columns[:20], 1.0), labels=("fail", "pass"))
    failing = frame[explainer.predict(frame) == "fail"][:3].reset_index(drop=True)
    with running(tmp_path, {"wide": explainer}, rows={"wide": failing}) as server:
        visit = Visit(browser, server.address).open()
        visit.unfold().page.click("#map-fold > summary")
        visit.page.fill("#columns", "sensor_17")
        visit.field("sensor_17").fill("-1.5")
        visit.page.get_by_role("button", name="Lock sensor_17").click()
        visit.page.wait_for_selector("#cards.outdated")
        visit.wait()
        row = failing[:1].assign(sensor_17=-1.5)
        expected = explainer.explain(row, "pass", locked=["sensor_17"])
        shown = visit.changed("Needed for the decision") + visit.changed("Go along to stay realistic")
        shown += visit.changed("Change together") + visit.changed("What would change")
        assert set(shown) == set(expected.changes["feature"])
        keep_picture(visit, "walk-columns", 1600)
        assert visit.complaints == []
        visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
@few_rows
def test_walk_on_a_phone(office, browser, keep_picture):
    """The answer comes first, controls are large enough for a finger, nothing scrolls sideways."""
    address, explainer, rows = office
    phone = {"width": 390, "height": 844, "is_mobile": True, "has_touch": True}
    visit = Visit(browser, address, **phone).open()
    visit.page.wait_for_selector(".main .usual", state="attached")
    top = "e => e.getBoundingClientRect().top"
    assert visit.page.locator("#headline").evaluate(top) < 200
    assert visit.page.locator(".main .change").first.evaluate(top) < 844
    name = holdable(explainer, declined(explainer, rows)[1])
    visit.page.get_by_role("button", name=f"{name} can't change", exact=True).tap()
    visit.page.wait_for_selector("#cards.outdated")
    visit.wait()
    assert visit.page.locator(f".main .change[data-feature={name}]").count() == 0
    visit.page.get_by_role("button", name="Limit of").first.tap()
    size = "e => Math.min(e.getBoundingClientRect().width, e.getBoundingClientRect().height)"
    assert min(one.evaluate(size) for one in visit.page.locator("button:visible").all()) >= 24
    assert visit.widths() == [390, 390]
    visit.page.wait_for_selector(".main .usual", state="attached")
    keep_picture(visit, "walk-phone", 1700)
    assert visit.complaints == []
    visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
@few_rows
def test_walk_with_the_keyboard_only(office, browser):
    """From the address line to a held feature, a bound, another row and another way, without the mouse."""
    address, explainer, rows = office
    visit = Visit(browser, address).open()
    press, focused = (
        visit.page.keyboard.press,
        "document.activeElement.dataset.key ?? document.activeElement.id",
    )

    def tab_to(key, most=40):
        for _ in range(most):
            press("Tab")
            if visit.page.evaluate(focused).startswith(key):
                return
        raise AssertionError(f"{key} was not reached in {most} steps")

    press("Tab")
    press("Enter")  # skip to the answer
    assert visit.page.evaluate("document.activeElement.id") == "answers"
    tab_to("lock-", most=1)
    name = holdable(explainer, declined(explainer, rows)[1])
    if visit.page.evaluate(focused) != f"lock-{name}":
        tab_to(f"lock-{name}", most=8)
    press("Enter")
    visit.page.wait_for_selector("#cards.outdated")
    visit.wait()
    assert visit.page.evaluate("document.activeElement.dataset.held") == name
    tab_to("lock-")
    for _ in range(3):  # to the last button of the toolbar
        if "limit-" in visit.page.evaluate(focused):
            break
        press("ArrowRight")
    bounded = visit.page.evaluate(focused).removeprefix("limit-")
    press("Enter")
    press("Tab")
    limit = visit.page.locator(f".main [data-feature={bounded}] mark").inner_text().replace(",", "")
    visit.page.keyboard.type(limit)
    press("Enter")
    visit.page.wait_for_selector("#cards.outdated")
    visit.wait()
    assert f"{bounded} at most" in visit.text("#kept")
    if visit.page.locator(".way-card").count():
        tab_to("way-")
        press("Enter")
        assert visit.page.evaluate("document.activeElement.id") == "answers"
    tab_to("rows")
    before = visit.page.input_value("#rows")
    press("ArrowDown")
    visit.page.wait_for_selector("#cards.outdated")
    visit.wait()
    assert visit.page.input_value("#rows") == str(int(before) + 1)
    assert visit.page.evaluate("document.activeElement.id") == "rows"
    assert visit.complaints == []
    visit.context.close()
