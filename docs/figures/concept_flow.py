"""A conditional flow: rows of a class, and the same rows after the flow."""

import math

import matplotlib.pyplot as plt
import torch
from concept_rows import AXES, ROWS, WANTED, applications, bare, draw_rows, of_class

import plausiflow as pf
from plausiflow.plots import ACCENT, QUIET

x, y, _, _ = applications()
flow = pf.ConditionalFlow().fit(x, y)
own = x[y == WANTED].double()
angles = torch.linspace(0, 2 * math.pi, 400, dtype=torch.float64)
circle = torch.stack([angles.cos(), angles.sin()], dim=1)
# Share of a two-dimensional normal distribution inside a circle of this radius.
radii = {share: math.sqrt(-2 * math.log(1 - share)) for share in (0.25, 0.5, 0.9)}

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
draw_rows(left, x, y)
with torch.no_grad():
    latent = flow.to_latent(own, of_class(own))
    for radius in radii.values():
        left.plot(*flow.from_latent(radius * circle, of_class(circle)).T, color=ACCENT, linewidth=1.2)
right.scatter(*latent.T, s=4, color=ROWS, alpha=0.5, linewidths=0)
for share, radius in radii.items():
    right.plot(*(radius * circle).T, color=ACCENT, linewidth=1.2)
    right.annotate(f"{share:.0%}", (0, radius), ha="center", va="bottom", fontsize=8, color=ACCENT)
bare(left, "Applications, and where the circles come from", AXES)
right.set(title="Granted applications after the flow", xlim=(-4, 4), ylim=(-4, 4), xticks=[], yticks=[])
right.set_aspect("equal")
right.title.set_size(10)
right.spines[:].set_color(QUIET)
