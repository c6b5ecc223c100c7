"""Values, options, map and copies of the what-if page in a browser, end to end on loans.

``PLAUSIFLOW_IMAGES=docs/images pytest tests/service/page -m slow -k pictures`` updates the images of the
documentation.
"""

import json
import os
from pathlib import Path

import pytest

import plausiflow as pf
from serving import running
from visiting import Visit, photograph

NAME = "loans"
TOKEN = "a-token-for-the-tests"
LARGEST_IMAGE = 300_000


@pytest.mark.slow
@pytest.mark.browser
def test_editing_a_value_changes_the_probability(visit, explainer, first):
    visit.unfold()
    visit.wait_for_share(explainer.predict_proba(first)["granted"].iloc[0])
    before = visit.share()
    visit.field("credit_score").fill("760")
    visit.wait_for_share(explainer.predict_proba(first.assign(credit_score=760))["granted"].iloc[0])
    assert visit.share() != before
    assert visit.page.get_by_text(f"was {first['credit_score'][0]}").is_visible()


@pytest.mark.browser
def test_a_locked_feature_stays_in_every_answer_and_the_map_is_drawn(visit, explainer, first):
    visit.unfold().page.get_by_role("button", name="Lock credit_score").click()
    visit.ask(count=2)
    expected = explainer.explain(first, "granted", k=2, locked=["credit_score"])
    answers = json.loads(expected.to_json())["rows"][0]["counterfactuals"]
    assert visit.page.locator(".way-card").count() == len(answers) - 1 == 1
    for place, answer in enumerate(answers):
        if place:
            visit.page.get_by_role("button", name="Show this way").click()
        else:
            visit.page.click(".unchanged summary")  # stays unfolded
        shown = visit.page.locator(".main .change").all()
        assert {item.get_attribute("data-feature") for item in shown} == {
            change["feature"] for change in answer["changes"]
        }
        assert visit.text("td[data-kept=credit_score]") == str(first["credit_score"][0])
    kept = visit.page.locator("td[data-kept=credit_score]")
    assert "locked" in kept.first.locator("xpath=..").inner_text()
    visit.page.wait_for_selector(".points .answer >> nth=1")
    assert visit.page.locator(".points .own").count() == 1
    assert visit.page.locator(".points .way").count() == 2
    assert visit.page.get_attribute("path.boundary", "d").startswith("M")
    shaded = "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
    assert visit.page.locator(".plot canvas").evaluate(shaded) > 20


@pytest.mark.browser
def test_a_row_without_an_answer_names_what_blocks_and_offers_the_answer_one_click_away(visit):
    visit.unfold()
    visit.page.get_by_role("button", name="Range of credit_score in an answer").click()
    visit.page.locator(".feature", has_text="credit_score").get_by_label("to", exact=True).fill("530")
    visit.ask()
    assert visit.headline.endswith("→ no realistic way to granted was found.")
    assert 'Range("credit_score", None, 530' in visit.text(".reason code")
    assert "blocks" in visit.text(".reason")
    assert "530" in visit.text(".miss .change:has-text('credit_score') mark")
    visit.page.get_by_role("button", name="Remove the limit of credit_score", exact=True).click()
    visit.page.wait_for_selector("#headline[data-status=found]")
    limit = visit.page.locator(".feature", has_text="credit_score").get_by_label("to", exact=True)
    assert limit.input_value() == ""


@pytest.mark.slow
@pytest.mark.browser
def test_what_is_proven_is_on_the_page_in_words(visit, explainer, rows):
    pytest.importorskip("ortools")
    visit.unfold().page.get_by_label("Prove what the cheapest change costs").check()
    visit.ask()
    shown = rows[explainer.predict(rows) != "granted"][:1]  # the page opens on it
    (proof,) = explainer.explain(shown, "granted", certify=5).status["proof"]
    assert "proven" in proof.lower()
    assert visit.text(".proof") == f"{proof}."


@pytest.mark.slow
@pytest.mark.browser
def test_a_row_that_meets_the_target_needs_no_answer(visit):
    visit.unfold().page.get_by_text("rejected", exact=True).last.click()  # asks at once
    visit.wait()
    assert visit.page.get_attribute(".without", "data-status") == "already"


@pytest.mark.browser
def test_the_copied_code_asks_the_same_question(visit, saved, first, capsys):
    visit.unfold()
    visit.page.click("#analysts summary")
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.page.get_by_role("button", name="Lock job").click()
    visit.page.get_by_role("button", name="Range of income in an answer").click()
    visit.page.locator(".feature", has_text="income").get_by_label("from", exact=True).fill("20000")
    visit.page.locator(".feature", has_text="income").get_by_label("goes", exact=True).select_option("up")
    visit.ask()
    copied = {}
    for name in ("JSON", "Python"):
        visit.page.get_by_role("button", name=f"Copy as {name}").click()
        visit.page.get_by_text(f"Copied as {name}.").wait_for()
        copied[name] = visit.page.evaluate("navigator.clipboard.readText()")
    content = json.loads(copied["JSON"])
    assert content["question"]["instances"] == json.loads(first.to_json(orient="records"))
    assert content["question"]["parameters"]["ranges"] == {"income": [20000, None]}
    assert content["question"]["parameters"]["increasing"] == ["income"]
    assert 'pf.Increasing("income")' in copied["Python"]
    names = {}
    exec(copied["Python"].replace(f'load("{NAME}")', f"load({str(saved)!r})"), names)
    answer = content["explanation"]["counterfactuals"][0]
    assert json.loads(names["result"].to_json())["rows"][0]["counterfactuals"][0] == answer
    assert answer["sentence"] in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.browser
def test_an_answer_can_become_the_row(visit):
    visit.unfold().ask()
    changed = [item.get_attribute("data-feature") for item in visit.page.locator(".main .change").all()]
    visit.page.get_by_role("button", name="Make it the row").click()
    visit.page.wait_for_selector(".outcome:has-text('granted')")
    assert sorted(visit.page.locator(".feature.edited .name").all_inner_texts()) == sorted(changed)
    assert "ask again" in visit.text("#state")
    visit.page.get_by_role("button", name="Undo my edits").click()
    visit.page.wait_for_selector(".outcome:has-text('rejected')")


@pytest.mark.slow
@pytest.mark.browser
def test_a_problem_is_shown_at_its_field(visit):
    visit.unfold().field("income").fill("")
    visit.page.get_by_text("A number is needed here").wait_for()
    assert visit.field("income").get_attribute("aria-invalid") == "true"
    # The message replaces the prediction after a moment; a click before it could miss the moving button.
    visit.page.locator("#says", has_text="see the marked field").wait_for()
    visit.page.click("#ask")
    visit.page.locator("#state", has_text="see the marked field").wait_for()
    visit.field("income").fill("1e300")
    visit.page.get_by_text("training rows have").wait_for()


@pytest.mark.slow
@pytest.mark.browser
def test_two_features_can_be_chosen_and_read_with_the_keyboard(visit, explainer, first):
    visit.unfold().page.select_option("#map-kind", "features")
    visit.page.select_option("#map-across", "job")
    visit.page.select_option("#map-up", "open_lines")
    visit.page.get_by_text("open_lines", exact=True).last.wait_for()
    labels = visit.page.locator(".axes text").all_text_contents()
    assert {"clerk", "manager", "manual", "self-employed", "specialist", "job"} <= set(labels)
    visit.page.locator(".plot").focus()
    visit.page.keyboard.press("ArrowRight")
    visit.page.keyboard.press("ArrowLeft")
    readout = visit.text(".readout")
    chance = explainer.predict_proba(first)["granted"].iloc[0]
    assert readout.startswith(f"job {first['job'][0]}, open_lines {first['open_lines'][0]}: granted ")
    assert f"{round(100 * chance, 1):g}\u00a0%" in readout
    assert "nats" in readout


@pytest.mark.slow
@pytest.mark.browser
def test_rows_are_found_by_search_and_picked(visit, explainer, rows):
    place = int(rows.index[explainer.predict(rows) == "granted"][0])
    visit.page.locator("#rows option", has_text="granted").first.wait_for()
    visit.page.fill("#search", f"granted {rows['income'][place]}")
    found = visit.page.locator("#rows option")
    assert f"income {rows['income'][place]:,}" in found.first.inner_text()
    visit.page.select_option("#rows", str(place))
    visit.page.wait_for_selector("#headline:has-text('Granted')")
    assert visit.unfold().field("income").input_value() == str(rows["income"][place])


@pytest.mark.slow
@pytest.mark.browser
def test_immutable_features_are_locked_for_good_with_the_reason(visit):
    lock = visit.unfold().page.get_by_role("button", name="age never changes: a rule of this model")
    assert lock.is_disabled()
    assert lock.get_attribute("aria-pressed") == "true"


@pytest.mark.slow
@pytest.mark.browser
def test_colours_follow_the_system_and_a_button(browser, service):
    shades = {}
    for scheme in ("light", "dark"):
        visit = Visit(browser, service, color_scheme=scheme).open()
        shades[scheme] = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        visit.page.click("#theme")
        shades[f"{scheme}, changed"] = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        visit.context.close()
    assert shades["light"] != shades["dark"]
    assert shades["light, changed"] == shades["dark"]
    assert shades["dark, changed"] == shades["light"]


@pytest.mark.slow
@pytest.mark.browser
def test_a_phone_has_one_column_and_does_not_scroll_sideways(browser, service):
    visit = Visit(browser, service, width=390, height=844, is_mobile=True, has_touch=True).open()
    assert visit.widths() == [390, 390]
    visit.unfold().page.get_by_role("button", name="Range of income in an answer").click()
    visit.ask()
    visit.page.wait_for_selector(".points .answer")
    assert visit.widths() == [390, 390]
    left = "e => Math.round(e.getBoundingClientRect().left)"
    places = [visit.page.locator(part).first.evaluate(left) for part in (".row", ".head", ".card", ".map")]
    assert len(set(places)) == 1
    assert visit.complaints == []
    visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
def test_a_busy_or_lost_service_is_told_in_words_and_can_be_asked_again(browser, service):
    visit = Visit(browser, service).open()
    busy = {"status": 503, "headers": {"Retry-After": "2"}, "json": {"error": "The queue is full."}}
    visit.unfold().page.route("**/*:explain", lambda route: route.fulfill(**busy))
    visit.page.click("#ask")
    visit.page.get_by_text("The queue is full. Try again in 2 seconds.").wait_for()
    visit.page.unroute("**/*:explain")
    visit.page.route("**/*:explain", lambda route: route.abort())
    visit.page.get_by_role("button", name="Try again").click()
    visit.page.get_by_text("The service does not answer.").wait_for()
    visit.page.unroute("**/*:explain")
    visit.page.get_by_role("button", name="Try again").click()
    visit.page.wait_for_selector("#cards .card")
    visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
def test_a_service_with_a_token_asks_for_it(browser, explainer, tmp_path):
    with running(tmp_path, {NAME: explainer}, token=TOKEN) as server:
        visit = Visit(browser, server.address)
        visit.page.goto(server.address)
        visit.page.fill("#token-text", "not the token")
        visit.page.keyboard.press("Enter")
        visit.page.get_by_text("not the right one").wait_for()
        visit.page.fill("#token-text", TOKEN)
        visit.page.keyboard.press("Enter")
        visit.wait()
        assert visit.page.locator("#picker").is_hidden()  # no rows were given: it starts from a typical one
        assert visit.unfold().field("income").input_value() != ""
        visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
def test_names_and_levels_that_look_like_markup_stay_text(browser, service):
    evil = "<img src=x onerror=alert(1)>"
    visit = Visit(browser, service)

    def insert_markup(route):
        description = route.fetch().json()
        description["outcome"], description["rules"] = evil, [evil]
        description["features"][3]["levels"].append(evil)
        learned = {"rule": evil, "description": evil, "rows": 1200, "support": 9, "exceptions": 1}
        description["learned_rules"] = [learned | {"active": True}, learned | {"active": False}]
        route.fulfill(json=description)

    visit.page.route(f"**/v1/models/{NAME}", insert_markup)
    visit.open().unfold()
    assert evil in visit.text(".decision")
    visit.page.get_by_text("Rules that always hold").click()
    learned = visit.page.locator(".rules ul").last.locator("li").all_inner_texts()
    assert learned == [f"{evil} (1,200 rows, 1 exception)"]
    assert visit.page.locator("img").count() == 0
    assert visit.complaints == []
    visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::plausiflow.densities.PlausibilityWarning")  # few rows
def test_pictures_of_page_and_report_are_small(browser, tmp_path):
    folder = Path(os.environ.get("PLAUSIFLOW_IMAGES", tmp_path))
    train, test = pf.load_table("loans").split(600, 40)
    rules = [pf.Immutable("age", "sex"), pf.Increasing("education")]
    explainer = pf.Explainer(pf.LinearClassifier(), constraints=rules).fit(train.x, train.y)
    rejected = test.x[explainer.predict(test.x) == "rejected"]
    with running(tmp_path, {NAME: explainer}, rows={NAME: rejected}) as server:
        for name, width, options in (
            ("light", 1360, {"color_scheme": "light"}),
            ("dark", 1360, {"color_scheme": "dark"}),
            ("phone", 390, {"is_mobile": True}),
        ):
            visit = Visit(browser, server.address, width=width, **options).open()
            visit.page.click("#map-fold > summary")
            visit.page.wait_for_selector(".points .answer")
            photograph(visit, folder / f"whatif-{name}.png", 5000)
            visit.context.close()
    explainer.explain(test.x, "granted", k=2).to_html(tmp_path / "report.html")
    for name, width in (("light", 1280), ("phone", 390)):
        visit = Visit(browser, (tmp_path / "report.html").as_uri(), width=width)
        visit.page.goto(visit.address)
        photograph(visit, folder / f"report-{name}.png", 3600)
        assert visit.complaints == []
        visit.context.close()
    for path in folder.glob("*-*.png"):
        assert path.stat().st_size < LARGEST_IMAGE, path.name
