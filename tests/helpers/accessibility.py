"""What axe-core finds wrong with a page, for people who use it with a keyboard or a screen reader."""

import pytest


def violations(page) -> list[str]:
    """Return the violations of all rules of axe-core but the experimental ones, each with its elements."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    found = axe.Axe().run(page).response["violations"]
    return [f"{one['id']}: {', '.join(str(node['target']) for node in one['nodes'])}" for one in found]
