"""The script of the report shows, filters, sorts and pages cards with the content of the result."""

import json
import re
import shutil
import subprocess

import pandas as pd
import pytest

from plausiflow.report.rendering import read_asset
from reporting import RESULTS, build, page_of

FAKE_PAGE = """
const fs = require("fs");
class Element {
  constructor(tag) { Object.assign(this, { tag, attributes: {}, children: [], listeners: {} }); }
  setAttribute(name, value) { this.attributes[name] = value; }
  append(...parts) { this.children.push(...parts); }
  replaceChildren(...parts) { this.children = parts; }
  addEventListener(name, act) { this.listeners[name] = act; }
  focus() { focused = this; }
  set textContent(text) { this.children = [text]; }
  get textContent() { return this.children.map((c) => (typeof c === "string" ? c : c.textContent)).join(""); }
}
let focused = null;
const places = {};
const ids = ["cards", "pages", "shown", "controls", "rows", "search", "verdict", "order", "main"];
for (const id of [...ids, "one-controls", "print"]) places[id] = new Element("div");
const events = {};
globalThis.location = { hash: "" };
globalThis.addEventListener = (name, act) => { events[name] = act; };
places.data = { textContent: fs.readFileSync(process.argv[2], "utf8") };
globalThis.document = {
  getElementById: (id) => places[id],
  createElement: (tag) => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
};
(0, eval)(fs.readFileSync(process.argv[3], "utf8"));
const seen = [];
const see = () => seen.push({ shown: places.shown.textContent, cards: places.cards.children,
  view: places.main.attributes.class, alone: !places["one-controls"].hidden });
const set = (id, value) => { places[id].listeners.input({ target: { value } }); see(); };
see();
for (const [id, value] of JSON.parse(process.argv[4])) {
  if (id === "go") { location.hash = value; events.hashchange(); see(); }
  else if (id === "beforeprint" || id === "afterprint") { events[id](); see(); }
  else if (id === "next") { places.pages.children[1].listeners.click(); see(); } else { set(id, value); }
}
console.log(JSON.stringify(seen));
"""


def node_of(tree, tag):
    """Every element of a kind below one."""
    own = [tree] if tree["tag"] == tag else []
    return own + [e for child in tree["children"] if isinstance(child, dict) for e in node_of(child, tag)]


def text_of(tree):
    return "".join(child if isinstance(child, str) else text_of(child) for child in tree["children"])


def title_of(card):
    """The heading of a card without its link."""
    (heading,) = node_of(card, "h3")
    (link,) = node_of(heading, "a")
    return text_of(heading).removesuffix(text_of(link)).rstrip(" ")


def run_script(page, folder, steps):
    """What the script shows at first, and after each step, on a page that only remembers."""
    if shutil.which("node") is None:
        pytest.skip("needs node, to run the report's script")
    (folder / "data.json").write_text(json.dumps(page.data))
    (folder / "script.js").write_text(read_asset("script.js"))
    (folder / "page.js").write_text(FAKE_PAGE)
    files = [str(folder / name) for name in ("page.js", "data.json", "script.js")]
    done = subprocess.run(
        ["node", *files, json.dumps(steps)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_script_shows_filters_orders_and_pages_cards(many, page, tmp_path):
    steps = [
        ("next", ""),
        ("verdict", "found"),
        ("order", "cost"),
        ("search", "NURSE clerk"),
        ("search", "%%"),
    ]
    first, second, found, dear, some, none = run_script(page, tmp_path, steps)
    assert first["shown"] == "Cards 1 to 20 of 90, page 1 of 5"
    assert second["shown"] == "Cards 21 to 40 of 90, page 2 of 5"
    labels = [title_of(card) for card in first["cards"] + second["cards"]]
    assert [int(re.match(r"Row (\d+)", text)[1]) for text in labels] == many.rows.index[:40].tolist()
    count = (many.verdicts["status"] == "found").sum()
    assert found["shown"] == f"Cards 1 to 20 of {count}, page 1 of {-(-count // 20)}"
    best = many.figures["cost"].groupby(many.of).first().sort_values(ascending=False)
    expected = [f"Row {label}✓\u00a0found" for label in many.rows.index[best.index[:20]]]
    assert [title_of(card) for card in dear["cards"]] == expected
    assert 0 < len(some["cards"]) < count
    assert (none["shown"], none["cards"]) == ("No row matches.", [])


def test_cards_hold_what_the_result_says(many, page, tmp_path):
    (first,) = run_script(page, tmp_path, [])
    changes = many.changes[many.changes["rank"] == 1].groupby("row")["feature"].agg(list)
    for i, card in enumerate(first["cards"]):
        one, text = many[i], text_of(card)
        assert one.sentence in text
        changed = [e for e in node_of(card, "tr") if e["attributes"].get("class") == "changed"]
        if one.counterfactuals:
            expected = changes.get(one.row, [])
            assert [text_of(node_of(e, "th")[0]) for e in changed] == expected
            assert len(node_of(card, "li")) == len(one.counterfactuals) - 1
            assert len(node_of(card, "circle")) == len(one.counterfactuals)
        for _, why in one.misses:
            assert why in text
            assert len(changed) == 1
        for svg in node_of(card, "svg"):
            assert svg["attributes"]["role"] == "img"
            assert svg["attributes"]["aria-label"] == text_of(node_of(svg, "title")[0])


@pytest.mark.parametrize("name", RESULTS)
def test_the_script_runs_on_any_result(name, tmp_path):
    result = RESULTS[name]()
    (first,) = run_script(page_of(result, tmp_path), tmp_path, [])
    assert len(first["cards"]) == len(result)
    assert "undefined" not in json.dumps(first)
    assert "NaN" not in json.dumps(first)


def test_the_address_of_a_row_shows_its_page_alone(many, page, tmp_path):
    steps = [("go", "#row-70"), ("go", "#rows"), ("go", "#row-90"), ("go", "#row-x"), ("search", "nurse")]
    first, one, back, unknown, odd, _ = run_script(page, tmp_path, steps)
    (card,) = one["cards"]
    assert title_of(card).startswith(f"Row {many.rows.index[70]}")
    assert (one["view"], one["alone"]) == ("one", True)
    for step in (first, back, unknown, odd):
        assert (step["view"], step["alone"], len(step["cards"])) == ("", False, 20)
    links = [link["attributes"]["href"] for card in first["cards"] for link in node_of(card, "a")]
    assert links == [f"#row-{i}" for i in range(20)]


def test_all_rows_that_match_are_printed_and_a_row_alone_is_printed_alone(many, page, tmp_path):
    steps = [
        ("verdict", "found"),
        ("beforeprint", ""),
        ("afterprint", ""),
        ("go", "#row-2"),
        ("beforeprint", ""),
    ]
    _, _, paper, screen, _, alone = run_script(page, tmp_path, steps)
    assert len(paper["cards"]) == (many.verdicts["status"] == "found").sum() > 20
    assert len(screen["cards"]) == 20
    assert len(alone["cards"]) == 1


def test_many_answers_are_folded(tmp_path):
    rows = pd.DataFrame({"a": ["x"]})
    page = page_of(build(rows, pd.DataFrame({"a": list("abcdefgh")}), [0] * 8), tmp_path)
    ((card,),) = [step["cards"] for step in run_script(page, tmp_path, [])]
    assert len(node_of(card, "li")) == 5
    assert text_of(node_of(card, "summary")[0]) == "2 more answers"


@pytest.mark.browser
def test_on_paper_each_row_has_a_page_and_a_row_alone_has_one(many, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium, to print the report")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, to print the report")
    many.to_html(tmp_path / "report.html")

    def pages(address) -> int:
        page = browser.new_page()
        page.goto(address)
        return len(re.findall(rb"/Type\s*/Page\b", page.pdf()))

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        address = (tmp_path / "report.html").as_uri()
        assert pages(f"{address}#row-3") == 1
        assert len(many) < pages(address) < len(many) + 10
        browser.close()


@pytest.mark.browser
def test_a_browser_shows_the_cards_and_has_nothing_to_complain(many, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium, to open the report")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, to open the report")
    many.to_html(tmp_path / "report.html")
    said, asked = [], []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 360, "height": 740})
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((tmp_path / "report.html").as_uri())
        assert page.locator(".card").count() == 20
        page.get_by_label("Verdict", exact=True).select_option("infeasible")
        assert page.locator(".card").count() == min(20, (many.verdicts["status"] == "infeasible").sum())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        browser.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
