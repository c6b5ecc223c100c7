"""The strips of the what-if page: how usual the new value is among training rows with the wanted outcome."""

import httpx
import pytest

from visiting import Visit


def population(service, target="granted"):
    address = f"{service}v1/models/loans:population"
    return httpx.post(address, json={"target": target}).json()["features"]


def places(strip, kind):
    """Return the places of the marks of a strip, as shares of the way from the first to the last edge."""
    return [(float(mark.get_attribute("cx").rstrip("%")) - 3) / 94 for mark in strip.locator(kind).all()]


@pytest.mark.browser
def test_a_strip_shows_the_population_and_where_the_row_is_now_and_then(visit, service, explainer, first):
    visit.page.wait_for_selector(".main .change .usual", state="attached")
    histograms = population(service)
    answer = explainer.explain(first, "granted", k=3).answers.iloc[0]
    numbers = [
        change for change in visit.page.locator(".main .change").all() if change.locator(".now").count()
    ]
    assert numbers != []
    for change in numbers:
        name = change.get_attribute("data-feature")
        histogram, strip = histograms[name], change.locator("svg")
        heights = [float(bar.get_attribute("height")) for bar in strip.locator(".usual").all()]
        shares = [share or 0 for share in histogram["shares"]]
        assert heights == pytest.approx([25 * share / max(shares) for share in shares], abs=0.1)
        if "edges" not in histogram:
            continue
        edges = histogram["edges"]
        for value, (place,) in (
            (first[name][0], places(strip, ".now")),
            (answer[name], places(strip, ".then")),
        ):
            bin_ = min(int(place * len(shares)), len(shares) - 1)
            assert edges[bin_] - 1e-6 <= value <= edges[bin_ + 1] + 1e-6, name
    assert "training rows that the model decides as granted" in visit.text(".main .strip-legend")


@pytest.mark.slow
@pytest.mark.browser
def test_how_usual_a_value_is_can_be_heard(visit, service):
    visit.page.wait_for_selector(".main .change .usual", state="attached")
    texts = visit.page.locator(".main .change .strip .hidden").all_text_contents()
    assert any("of them are between" in text or "rare among them" in text for text in texts)


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_works_without_the_population(browser, service):
    visit = Visit(browser, service)
    visit.page.route(
        "**/*:population",
        lambda route: route.fulfill(status=503, json={"error": "busy", "code": "overloaded"}),
    )
    visit.open()
    assert visit.page.locator(".main .change .now").count() > 0
    assert visit.page.locator(".usual").count() == 0
    visit.context.close()
