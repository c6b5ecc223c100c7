"""The study of perfect counterfactuals: its densities against SciPy, its rows, the command."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal

from benchmarking import invoke, read_json
from plausiflow_bench.realism import exact


def test_the_log_density_is_that_of_scipy():
    classes = exact.NormalClasses.draw(4, seed=1)
    y = torch.tensor([0, 1, 1])
    x = classes.sample(y, seed=2)
    for row, k, value in zip(x, y, classes.log_prob(x, y), strict=True):
        expected = multivariate_normal(classes.means[k].numpy(), classes.covariance.numpy()).logpdf(
            row.numpy()
        )
        assert float(value) == pytest.approx(expected)


def test_samples_have_the_means_and_the_covariance():
    classes = exact.NormalClasses.draw(3, seed=0)
    x = classes.sample(torch.ones(20_000, dtype=torch.long), seed=5)
    torch.testing.assert_close(x.mean(dim=0), classes.means[1], atol=0.05, rtol=0)
    np.testing.assert_allclose(np.cov(x.numpy().T), classes.covariance.numpy(), atol=0.06)


@pytest.mark.slow
def test_perfect_answers_are_recognised_as_well_as_ours(monkeypatch, tmp_path):
    """The order of the two is not a promise, but real rows are recognised by chance only."""
    monkeypatch.setattr(exact, "WIDTHS", (3,))
    page = tmp_path / "page.md"
    page.write_text(f"# Realism\n{exact.MARK}\n<!-- end -->\n")
    done = invoke(
        "benchmark", "realism-exact", "--rows", 60, "--json", tmp_path / "rows.json", "--page", page
    )
    assert done.exit_code == 0, done.output
    rows = pd.DataFrame(read_json(tmp_path / "rows.json")).set_index("method")
    assert rows.loc["real", "auc"] == pytest.approx(0.5, abs=0.1)
    assert (rows.loc[["exact_density", "plausiflow"], "found"] == 1).all()
    assert rows.loc["exact_density", "auc"] > 0.8
    assert "| normal_3 | exact_density |" in page.read_text()
