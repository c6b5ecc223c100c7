"""The closest row with another decision, and the closest plausible one."""

import matplotlib.pyplot as plt
import torch
from concept_moons import DENSE, WANTED, bare, draw_rows, moons, of_class, plane

import plausiflow as pf
from plausiflow.methods import Wachter
from plausiflow.plots import ACCENT, QUIET, WARM

x, y, x_test, _ = moons()
model = pf.MLPClassifier().fit(x, y)
plausible = pf.PPCEF(classifier=model, density="maf").fit(x, y)
closest = Wachter(classifier=model, distance="l2").fit(x, y)

rows = x_test[pf.predict(model, x_test) != WANTED].double()
near = closest.explain(rows, of_class(rows)).x_cf
real = plausible.explain(rows, of_class(rows)).x_cf
with torch.no_grad():
    scores = plausible.fitted_plausibility().score(near.double(), of_class(rows))
shown = int(scores.nan_to_num(nan=0.0).argmin())  # the row whose closest answer is the least plausible

first, second, points = plane()
with torch.no_grad():
    score = plausible.fitted_plausibility().score(points, of_class(points)).view(first.shape)
    logits = model.logits(points)
gap = (logits[:, WANTED] - logits[:, 1 - WANTED]).view(first.shape)

figure, axes = plt.subplots(figsize=(5.2, 4.8), layout="constrained")
axes.contourf(first, second, score, levels=[0, 1e9], colors=[DENSE])
axes.contour(first, second, gap, levels=[0], colors=ACCENT, linewidths=1.5)
draw_rows(axes, x, y)
start = rows[shown].tolist()
for answer, colour, text in ((near[shown], QUIET, "closest"), (real[shown], WARM, "closest plausible")):
    end = answer.tolist()
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": "->", "color": colour, "shrinkA": 4, "shrinkB": 4}
    )
    axes.plot(*end, "o", markersize=7, color=colour, markeredgecolor="white")
    axes.annotate(text, end, (-20, -16), textcoords="offset points", fontsize=9)
axes.plot(*start, "o", markersize=7, color="black")
axes.annotate("the row", start, (7, 5), textcoords="offset points", fontsize=9)
bare(axes, "Blue: the decision line. Shaded: where the orange class is dense")
