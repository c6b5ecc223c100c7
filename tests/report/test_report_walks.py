"""Walks in a browser: an auditor reads a report with its origin, a customer's letter is printed."""

import re
import shutil

import pytest

import plausiflow as pf
from accessibility import violations

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def result():
    train, test = pf.load_table("loans").split(300, 60)
    rules = [pf.Immutable("age", "sex"), pf.Increasing("education")]
    explainer = pf.Explainer(pf.LinearClassifier(), constraints=rules, confidence=None, judges=2)
    return explainer.fit(train.x, train.y, effort="quick").explain(test.x, "granted")


def opened(browser, path, **options):
    page = browser.new_page(**options)
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.on("request", lambda request: pytest.fail(request.url) if "//" in request.url[8:] else None)
    page.goto(path.as_uri())
    return page


def pages_of(page) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))


def test_an_auditor_reads_the_origin_the_numbers_and_the_audit_and_prints_one_person(
    browser, result, tmp_path
):
    audit = result.audit("sex", min_size=5, permutations=99, samples=50)
    result.to_html(tmp_path / "report.html", "Loans, March", audit=audit)
    page = opened(browser, tmp_path / "report.html")
    origin = page.locator("#facts").inner_text()
    for fact in ("age and sex stay as they are", "education may only rise", "300 training rows", "UTC",
                 f"plausiflow {pf.__version__}", "more typical than 50 % of real rows", "Seed"):  # fmt: skip
        assert fact in origin
    assert len(re.findall(r"\b[0-9a-f]{16}\b", origin)) == 2
    numbers = page.locator("#numbers li").all_inner_texts()
    assert numbers[0] == f"{int(result.is_needed.sum())} rejected"
    assert numbers[1] == f"{int(result.is_found.sum())} with a suggestion"
    assert page.get_by_role("heading", name="Audit: groups of rows compared").is_visible()
    i = int(result.is_found.nonzero()[0][0])
    page.get_by_role("link", name=f"Page of row {result.rows.index[i]}", exact=True).click()
    assert page.locator(".card").count() == 1
    assert not page.get_by_role("heading", name="Summary").is_visible()
    assert result.sentences.iloc[i] in page.locator(".card").inner_text()
    assert pages_of(page) == 1
    page.get_by_role("link", name="All rows").click()
    page.wait_for_function("document.querySelectorAll('.card').length > 1")
    assert page.get_by_role("heading", name="Summary").is_visible()


def test_a_person_has_the_same_page_on_a_phone(browser, result, tmp_path):
    result.to_html(tmp_path / "report.html")
    page = opened(browser, tmp_path / "report.html", viewport={"width": 390, "height": 800})
    page.goto((tmp_path / "report.html").as_uri() + "#row-1")
    assert page.locator(".card").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_letter_to_a_customer_is_one_printed_page_and_fits_a_phone(browser, result, tmp_path, language):
    i = int(result.is_found.nonzero()[0][0])
    path = tmp_path / "letter.html"
    path.write_text(result.letter(i, language=language, format="html"), encoding="utf-8")
    page = opened(browser, path, viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("li").count() == len(result[i].changes)
    assert page.evaluate("document.documentElement.lang") == language
    assert pages_of(page) == 1


PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True}


@pytest.mark.parametrize("look", [{}, {"color_scheme": "dark"}, PHONE], ids=["light", "dark", "phone"])
def test_axe_finds_nothing_in_a_report_and_a_letter(browser, result, tmp_path, look):
    audit = result.audit("sex", min_size=5, permutations=99, samples=50)
    result.to_html(tmp_path / "report.html", "Loans, March", audit=audit)
    page = opened(browser, tmp_path / "report.html", **look)
    assert violations(page) == []
    i = int(result.is_found.nonzero()[0][0])
    page.goto((tmp_path / "report.html").as_uri() + f"#row-{i + 1}")
    assert violations(page) == []
    (tmp_path / "letter.html").write_text(result.letter(i, format="html"), encoding="utf-8")
    assert violations(opened(browser, tmp_path / "letter.html", **look)) == []
