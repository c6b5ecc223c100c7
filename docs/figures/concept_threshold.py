"""A threshold is a quantile of the log-densities of held-out real rows."""

import matplotlib.pyplot as plt
import torch
from concept_rows import AXES, ROWS, WANTED, applications, bare, draw_rows, of_class, plane

import plausiflow as pf
from plausiflow.plots import ACCENT, QUIET

x, y, x_test, y_test = applications()
flow = pf.ConditionalFlow().fit(x, y)
real = x_test[y_test == WANTED].double()
first, second, points = plane()
with torch.no_grad():
    held_out = flow.log_prob(real, of_class(real))
    log_prob = flow.log_prob(points, of_class(points)).view(first.shape)
thresholds = {q: float(held_out.quantile(q)) for q in (0.1, 0.5, 0.9)}

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
left.hist(held_out.clamp_min(-4), bins=24, color=ROWS, alpha=0.6)
for q, at in thresholds.items():
    left.axvline(at, color=ACCENT, linewidth=2.2 if q == 0.5 else 1.0)
    left.annotate(
        f"{q:g}", (at, 1.01), xycoords=("data", "axes fraction"), ha="center", color=ACCENT, fontsize=8
    )
left.set(xlabel="log-density of held-out applications (nats)", ylabel="granted applications")
left.set_title("Half of the granted ones are right of the thick line", size=10, pad=16)
left.spines[["top", "right"]].set_visible(False)
draw_rows(right, x, y)
widths = [2.2 if q == 0.5 else 1.0 for q in thresholds]
right.contour(first, second, log_prob, levels=sorted(thresholds.values()), colors=ACCENT, linewidths=widths)
bare(right, "Plausible is inside the line", AXES)
right.spines[:].set_color(QUIET)
