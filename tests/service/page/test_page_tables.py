"""The what-if page of other models and tables: predicted numbers, several outcomes, and sixty columns."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import plausiflow as pf
from explaining import stand_in
from serving import running
from visiting import Visit


def open_page(browser, folder, explainer, rows, **options):
    return running(folder, {"model": explainer}, rows={"model": rows}, **options)


def first_answer(explainer, row, target, **options):
    return json.loads(explainer.explain(row, target, **options).to_json())["rows"][0]["counterfactuals"][0]


@pytest.fixture(scope="module")
def houses():
    """Return a table of houses, and the explainer of a model that predicts their prices."""
    rng = np.random.default_rng(1)
    area, age = rng.integers(40, 200, 240), rng.integers(0, 80, 240)
    rooms = (area / 30 + rng.normal(0, 0.5, 240)).round().clip(1, 6)
    table = pd.DataFrame({"area": area, "age": age, "rooms": rooms.astype(int)})
    price = pd.Series(3000 * area - 800 * age + rng.normal(0, 9000, 240), name="price")
    model = LinearRegression().fit(table, price)
    explainer = pf.Explainer(model, constraints=[pf.Immutable("age")], confidence=None, judges=0)
    return explainer.fit(table, price, effort="quick"), table


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::plausiflow.densities.PlausibilityWarning")
def test_a_predicted_number_is_asked_for_an_interval(browser, houses, tmp_path):
    explainer, table = houses
    predicted = explainer.predict(table)
    low = float(predicted.quantile(0.7).round(-3))
    rows = pd.concat([table[predicted >= low][:2], table[predicted < 0.8 * low][:4]])
    with open_page(browser, tmp_path, explainer, rows, targets={"model": (low, None)}) as server:
        visit = Visit(browser, server.address).open()
        row = rows[2:3].reset_index(drop=True)  # the first below the interval
        answer = first_answer(explainer, row, (low, None), k=1)
        then = explainer.predict(pd.DataFrame([answer["values"]])).iloc[0]
        now = explainer.predict(row).iloc[0]
        assert visit.headline == f"Price {now:,.0f} → would be {then:,.0f}, if …"
        assert then >= low
        assert f"price at least {low:,.0f} (the favourable outcome of this service)" in visit.text("#asked")
        visit.page.wait_for_selector(".main .usual", state="attached")
        assert "training rows that the model decides as at least" in visit.text(".main .strip-legend")
        assert "Percentages" not in visit.text("#asked")
        visit.unfold().page.fill("#target-from", str(1.05 * low))
        visit.page.keyboard.press("Tab")
        visit.ask()
        value = float(visit.headline.split("would be ")[1].split(", if")[0].replace(",", ""))
        assert value >= 1.05 * low - 1
        visit.page.fill("#target-from", "")
        visit.page.click("#ask")
        visit.page.get_by_text("Enter at least one bound.").wait_for()
        assert visit.complaints == []
        visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
def test_a_predicted_number_without_an_interval_asks_for_one_first(browser, houses, tmp_path):
    explainer, table = houses
    with open_page(browser, tmp_path, explainer, table[:3]) as server:
        visit = Visit(browser, server.address)
        visit.page.goto(server.address)
        visit.page.get_by_text("Which price is favourable is not known.").wait_for()
        assert visit.headline.startswith("Price ")
        assert visit.complaints == []
        visit.context.close()


@pytest.fixture(scope="module")
def flowers():
    """Return a table of three kinds of flowers whose names say nothing about which is better."""
    rng = np.random.default_rng(2)
    kind = np.repeat(["setosa", "versicolor", "virginica"], 80)
    centre = np.repeat([[1.5, 0.3], [4.3, 1.3], [5.6, 2.0]], 80, axis=0)
    size = (centre + rng.normal(0, 0.35, (240, 2))).round(2).clip(0.1)
    table = pd.DataFrame(size, columns=["petal_length", "petal_width"])
    table["sepal_length"] = (4 + 0.4 * table["petal_length"] + rng.normal(0, 0.3, 240)).round(1)
    outcome = pd.Series(kind, name="kind")
    return pf.Explainer(pf.LinearClassifier(), confidence=None, judges=0).fit(table, outcome), table


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::plausiflow.densities.PlausibilityWarning")
def test_with_several_outcomes_the_share_is_named_and_another_outcome_is_one_click_away(
    browser, flowers, tmp_path
):
    explainer, table = flowers
    rows = table[explainer.predict(table) == "versicolor"][:3].reset_index(drop=True)
    shares = explainer.predict_proba(rows[:1]).iloc[0]
    with open_page(browser, tmp_path, explainer, rows, targets={"model": "virginica"}) as server:
        visit = Visit(browser, server.address).open()
        answer = first_answer(explainer, rows[:1], "virginica", k=3)
        start = f"Versicolor (virginica {share_text(shares['virginica'])})"
        assert visit.headline == f"{start} → would be virginica, {share_text(answer['probability'])}, if …"
        visit.unfold().page.get_by_text("setosa", exact=True).last.click()
        visit.page.wait_for_selector("#cards.outdated")
        visit.wait()
        assert "(setosa " in visit.headline
        assert "would be setosa" in visit.headline
        visit.page.wait_for_selector(".main .strip-legend:has-text('decides as setosa')")
        assert visit.complaints == []
        visit.context.close()


def share_text(share):
    if 0 < share < 0.005:
        return "under 1 %"
    return "over 99 %" if 0.995 < share < 1 else f"{100 * share:.0f} %"


@pytest.fixture(scope="module")
def sensors():
    """Return an explainer of sixty columns, of which twenty matter, and rows that fail."""
    columns = [f"sensor_{i}" for i in range(60)]
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 60)).round(2), columns=columns)
    explainer = stand_in(frame, push=dict.fromkeys(columns[:20], 1.0), labels=("fail", "pass"))
    return explainer, frame[explainer.predict(frame) == "fail"][:3]


@pytest.mark.slow
@pytest.mark.browser
def test_a_table_of_sixty_columns_shows_what_changes_and_a_page_of_columns(browser, sensors, tmp_path):
    explainer, failing = sensors
    with open_page(browser, tmp_path, explainer, failing) as server:
        visit = Visit(browser, server.address).open()
        changed = {change["feature"] for change in first_answer(explainer, failing[:1], "pass")["changes"]}
        shown = visit.page.locator(".main .change").all()
        assert {item.get_attribute("data-feature") for item in shown} == changed
        assert visit.page.locator(".main .unchanged td").first.is_hidden()
        assert max(map(len, visit.page.locator("#rows option").all_inner_texts())) < 400

        def columns():
            return [one.inner_text() for one in visit.page.locator(".feature:visible .name").all()]

        visit.unfold()
        assert columns() == [f"sensor_{i}" for i in range(12)]
        assert visit.page.get_by_role("button", name="Previous columns").is_disabled()
        visit.page.get_by_role("button", name="Next columns").click()
        assert columns() == [f"sensor_{i}" for i in range(12, 24)]
        assert visit.text("#page-state") == "13 to 24 of 60 columns"
        visit.page.fill("#columns", "sensor_5")
        assert columns() == ["sensor_5", *(f"sensor_5{i}" for i in range(10))]
        assert visit.page.get_by_role("button", name="Next columns").is_disabled()
        visit.page.fill("#columns", "nothing")
        assert visit.text("#page-state") == "No column matches."
        assert visit.complaints == []
        visit.context.close()


@pytest.mark.slow
@pytest.mark.browser
def test_a_problem_in_a_column_of_another_page_is_turned_to(browser, sensors, tmp_path):
    explainer, failing = sensors
    with open_page(browser, tmp_path, explainer, failing) as server:
        visit = Visit(browser, server.address).open()
        visit.unfold().field("sensor_3").fill("")
        visit.page.get_by_role("button", name="Next columns").click()
        assert visit.field("sensor_3").is_hidden()
        visit.page.click("#ask")
        visit.page.get_by_text("A number is needed here").wait_for()
        assert visit.field("sensor_3").is_visible()
        visit.context.close()
