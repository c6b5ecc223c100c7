"""A visit to a page in a browser, and screenshots."""

from pathlib import Path

import pytest

PATIENCE = 20_000


class Visit:
    """A page in its own window, with its requests and its errors."""

    def __init__(self, browser, address, *, width=1360, height=1000, **options):
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        self.context.set_default_timeout(PATIENCE)
        self.requests, self.complaints = [], []
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console",
            lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None,
        )
        self.address = address

    def open(self):
        self.page.goto(self.address)
        self.wait()
        return self

    def unfold(self):
        """Show the values, the options and the map, which are folded at first."""
        for fold in ("#edit", "#map-fold"):
            if self.page.get_attribute(fold, "open") is None:
                self.page.click(f"{fold} > summary")
        return self

    def wait(self):
        """Wait until the page has answered in full."""
        self.page.wait_for_selector("#ask:not([disabled])", state="attached")
        self.page.wait_for_selector("#cards .card")
        self.page.wait_for_selector("#cards:not(.outdated)")
        self.page.wait_for_selector("#ask:not([disabled])", state="attached")
        return self

    @property
    def headline(self) -> str:
        """The decision now and then, in one line."""
        return self.text("#headline").replace("\u00a0", " ")

    def changed(self, heading: str) -> list[str]:
        """Return the features that are listed under a heading."""
        section = self.page.locator("section.purpose", has=self.page.get_by_role("heading", name=heading))
        return [item.get_attribute("data-feature") for item in section.locator(".change").all()]

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def share(self, label: str = "granted") -> str:
        """Return the displayed probability."""
        return self.page.locator(".bars li", has_text=label).locator(".number").inner_text()

    def wait_for_share(self, expected: float) -> None:
        shown = f"{round(100 * expected, 1):g}\u00a0%"
        self.page.locator(".bars li", has_text="granted").get_by_text(shown, exact=True).wait_for()

    def field(self, name: str):
        return self.page.get_by_label(name, exact=True)

    def ask(self, count: int = 1) -> None:
        """Ask, and wait for all answers."""
        self.page.select_option("#count", str(count))
        self.page.click("#ask")
        self.wait()

    def widths(self) -> list[int]:
        return self.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")


def photograph(visit, path: Path, most: int) -> None:
    """Save a screenshot of the page up to a height, with few colours to keep the file small."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install pillow")
    height = visit.page.evaluate("document.documentElement.scrollHeight")
    visit.page.set_viewport_size({"width": visit.widths()[1], "height": min(height, most)})
    visit.page.wait_for_timeout(500)
    visit.page.screenshot(path=path)
    with image.open(path) as picture:
        small = picture.convert("RGB").quantize(255)
    small.save(path, optimize=True)
