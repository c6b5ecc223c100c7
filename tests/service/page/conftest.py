"""A real service of loans, and a browser that visits its page; no request goes to another machine."""

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

import plausiflow as pf
from serving import running
from visiting import Visit

NAME = "loans"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def applications():
    return pf.load_table("loans").split(250, 12)


@pytest.fixture(scope="session")
def saved(applications, tmp_path_factory) -> Path:
    """Return the folder of a small explainer; the service and the tests load it."""
    folder = tmp_path_factory.mktemp("page") / NAME
    rules = [pf.Immutable("age", "sex"), pf.Increasing("education")]
    explainer = pf.Explainer(pf.LinearClassifier(), constraints=rules, confidence=None, judges=0)
    explainer.fit(applications[0].x, applications[0].y).save(folder)
    return folder


@pytest.fixture(scope="module")
def explainer(saved):
    return pf.Explainer.load(saved)


@pytest.fixture(scope="module")
def rows(applications, explainer) -> pd.DataFrame:
    """Return example rows; the first two are granted, the third is rejected, but close to the boundary."""
    given = applications[1].x
    chance = explainer.predict_proba(given)["granted"]
    near = given.loc[(chance - 0.3).abs().sort_values().index]
    granted = chance.loc[near.index] > 0.5
    return pd.concat([near[granted][:2], near[~granted], near[granted][2:]]).reset_index(drop=True)


@pytest.fixture(scope="module")
def first(rows) -> pd.DataFrame:
    """Return the row on which the page opens: the first that is not granted."""
    return rows[2:3].reset_index(drop=True)


@pytest.fixture(scope="module")
def service(explainer, rows, tmp_path_factory):
    with running(tmp_path_factory.mktemp("service"), {NAME: explainer}, rows={NAME: rows}) as server:
        yield server.address


@pytest.fixture(scope="module")
def browser(service):
    """Yield a headless Chromium, started after the service; skip the tests if there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = os.environ.get("PLAUSIFLOW_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium on this machine; install one, or name it in PLAUSIFLOW_BROWSER")
    with api.sync_playwright() as playwright:
        as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=found, args=as_root)
        yield started
        started.close()


@pytest.fixture
def visit(browser, service):
    """Yield a visit; afterwards there must be no error and no request to another machine."""
    visit = Visit(browser, service)
    yield visit.open()
    visit.context.close()
    assert visit.complaints == []
    assert [url for url in visit.requests if not url.startswith(service)] == []
