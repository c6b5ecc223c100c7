"""Every plot looks as it was recorded, on given axes; a changed drawing is noticed.

Texts are left out of the comparison, because fonts differ between machines; other tests compare them.
`--rewrite-pictures` records the pictures.
"""

from pathlib import Path

import numpy as np
import pytest

from plausiflow import plots

compare = pytest.importorskip("matplotlib.testing.compare")
figures = pytest.importorskip("matplotlib.figure")

PICTURES = Path(__file__).with_name("pictures")
TOLERANCE = 2.5
"""Root mean square difference of the colours, of 255: edges are smoothed a little differently elsewhere."""


def moves(axes, shift=0.0):
    plots.draw_moves(
        axes,
        names=["income", "debt", "job"],
        moves=[0.3 + shift, -0.2, float("nan")],
        texts=["a", "b", "c"],
        title="t",
    )


def steps(axes, shift=0.0):
    levels = [0.1, 0.4 + shift, 0.35, 0.8]
    plots.draw_steps(axes, names=["a", "b", "c"], levels=levels, title="t", label="p", as_share=True)


def swarm(axes, shift=0.0):
    own = np.round(np.linspace(-0.4, 0.5, 30), 1) + shift
    plots.draw_swarm(axes, names=["a", "b"], moves=[own.tolist(), [0.0, 0.2, float("nan")]], title="t")


def counts(axes, shift=0.0):
    plots.draw_counts(axes, names=["one", "two", "none"], counts=[30 + round(40 * shift), 12, 5], title="t")


def tradeoff(axes, shift=0.0):
    plots.draw_tradeoff(
        axes,
        costs=[0.1, 0.2 + shift, 0.5],
        scores=[0.4, 0.1, 2.0],
        sure=[True, False, True],
        names=["1", "2", "3"],
        title="t",
    )


def plane(axes, shift=0.0):
    x, y = np.linspace(0, 1, 20), np.linspace(0, 2, 25)
    xs, ys = np.meshgrid(x, y)
    shade = 1 / (1 + np.exp(-6 * (xs + ys / 2 - 1 + shift)))
    score = 0.3 - (xs - 0.7) ** 2 - (ys - 1.2) ** 2
    grid = plots.PlaneGrid(x, y, shade, shade - 0.5, score)
    plots.draw_plane(
        axes,
        plane=grid,
        names=("a", "b"),
        points=[(0.2, 0.5), (0.6, 1.0)],
        title="t",
        label="p",
        as_share=True,
    )


def means(axes, shift=0.0):
    intervals = [(0.2, 0.5), (0.3 + shift, 0.9)]
    plots.draw_means(
        axes,
        names=["a", "b"],
        means=[0.4, 0.6 + shift],
        intervals=intervals,
        title="t",
        label="m",
        as_share=False,
    )


DRAWN = {function.__name__: function for function in (moves, steps, swarm, counts, tradeoff, plane, means)}


def picture(draw, path, **settings):
    """Draw on given axes, without texts, and save the picture."""
    figure = figures.Figure(figsize=(4, 3), dpi=50)
    axes = figure.add_axes((0.1, 0.1, 0.85, 0.8))
    draw(axes, **settings)
    for own in figure.axes:
        own.set(title="", xlabel="", ylabel="", xticklabels=[], yticklabels=[])
        for text in own.texts:
            if not getattr(text, "arrow_patch", None):
                text.set_visible(False)
        if own.get_legend() is not None:
            own.get_legend().remove()
    figure.savefig(path, metadata={"Software": None})


@pytest.mark.parametrize("name", DRAWN)
def test_a_plot_looks_as_it_was_recorded(name, tmp_path, request):
    recorded = PICTURES / f"{name}.png"
    if request.config.getoption("--rewrite-pictures"):
        picture(DRAWN[name], recorded)
    picture(DRAWN[name], tmp_path / "now.png")
    assert compare.compare_images(str(recorded), str(tmp_path / "now.png"), tol=TOLERANCE) is None
    assert recorded.stat().st_size < 10_000


@pytest.mark.parametrize("name", DRAWN)
def test_another_drawing_is_noticed(name, tmp_path):
    picture(DRAWN[name], tmp_path / "now.png", shift=0.3)
    assert compare.compare_images(str(PICTURES / f"{name}.png"), str(tmp_path / "now.png"), tol=TOLERANCE)


def test_a_figure_of_a_notebook_is_one_that_it_shows_and_others_are_not(monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    before = len(pyplot.get_fignums())
    plots.new_axes(3, 2)
    assert len(pyplot.get_fignums()) == before
    monkeypatch.setattr(plots, "in_notebook", lambda: True)
    axes = plots.new_axes(3, 2)
    assert axes.figure is pyplot.gcf()
    pyplot.close(axes.figure)
