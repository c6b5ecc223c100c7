"""The questions that lead to each verdict."""

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

from plausiflow.plots import ACCENT, INK, QUIET

QUESTIONS = (
    ("Can every cell be read?", "no", "invalid_input"),
    ("Does the model already decide as the target?", "yes", "already"),
    ("Was the row searched before the time limit?", "no", "not_reached"),
    ("Does an answer pass the model, the rules and the density?", "yes", "found"),
    ("Is relaxed=True, and is there a nearest miss?", "yes", "relaxed"),
)
LEFT, RIGHT = 3.2, 8.4
"""Centres of the boxes of questions and of verdicts."""

figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")


def draw_box(middle: float, height: float, width: float, text: str, *, verdict: bool) -> None:
    """Draw a box with a text; verdicts are blue."""
    colours = {"facecolor": "#eff6ff" if verdict else "white", "edgecolor": ACCENT if verdict else QUIET}
    corner = (middle - width / 2, height - 0.25)
    axes.add_patch(FancyBboxPatch(corner, width, 0.5, boxstyle="round,pad=0.05", **colours))
    style = {"family": "monospace"} if verdict else {}
    axes.text(middle, height, text, ha="center", va="center", fontsize=9, **style)


arrow = {"arrowstyle": "->", "color": INK, "shrinkA": 0, "shrinkB": 0}
for place, (question, way, verdict) in enumerate(QUESTIONS):
    draw_box(LEFT, -place, 5.6, question, verdict=False)
    draw_box(RIGHT, -place, 1.9, verdict, verdict=True)
    axes.annotate("", (RIGHT - 1.0, -place), (LEFT + 2.85, -place), arrowprops=arrow)
    axes.text((LEFT + RIGHT + 1.9) / 2, -place + 0.1, way, ha="center", fontsize=8, color=INK)
    axes.annotate("", (LEFT, -place - 0.7), (LEFT, -place - 0.3), arrowprops=arrow)
    axes.text(LEFT + 0.12, -place - 0.55, "yes" if way == "no" else "no", fontsize=8, color=INK)
draw_box(LEFT, -len(QUESTIONS), 1.9, "infeasible", verdict=True)
axes.set(xlim=(0, 9.7), ylim=(-len(QUESTIONS) - 0.4, 0.4))
axes.axis("off")
