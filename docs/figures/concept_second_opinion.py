"""Loan applications: answers of a search with one flow, and of one with a margin, checked by three judges."""

import warnings

import matplotlib.pyplot as plt
import torch
from concept_rows import AXES, WANTED, applications, bare, draw_rows, of_class, plane

import plausiflow as pf
from plausiflow.densities import PlausibilityWarning
from plausiflow.plots import ACCENT, QUIET

# With few rows, the margin may not reach the confidence of 0.95; it then has its maximum.
warnings.simplefilter("ignore", PlausibilityWarning)
x, y, x_test, _ = applications()
x, y = x[:500], y[:500]
model = pf.LinearClassifier().fit(x, y)
judges = pf.Judges(count=3).fit(x, y)
rows = x_test[pf.predict(model, x_test) != WANTED][:80].double()
methods = {
    "One flow": pf.PPCEF(classifier=model, density="maf"),
    "Four flows and a margin": pf.PPCEF(classifier=model, density=pf.CrossFitEnsemble(members=4)),
}

first, second, points = plane(120)
assert judges.log_delta_ is not None
boundaries = []
with torch.no_grad():
    for flow, log_delta in zip(judges.flows_, judges.log_delta_, strict=True):
        boundaries.append((flow.log_prob(points, of_class(points)) - log_delta[WANTED]).view(first.shape))

own = x[y == WANTED]
low, high = (own.amin(dim=0) - 0.05).tolist(), (own.amax(dim=0) + 0.05).tolist()
figure, panels = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained")
for axes, (name, method) in zip(panels, methods.items(), strict=True):
    answers = method.fit(x, y).explain(rows, of_class(rows))
    passed = judges.passes(answers.x_cf.double(), of_class(rows))
    draw_rows(axes, x, y)
    for boundary in boundaries:
        axes.contour(first, second, boundary, levels=[0], colors=QUIET, linewidths=0.9)
    everyone = passed.all(dim=1)
    axes.scatter(*answers.x_cf[everyone].T, s=12, color=ACCENT, label="all judges accept")
    axes.scatter(*answers.x_cf[~everyone].T, s=14, color="#dc2626", marker="x", label="some do not")
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    bare(axes, f"{name}: {passed.double().mean():.0%} of the judges' votes", AXES)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
