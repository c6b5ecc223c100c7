"""
Counterfactual images of digits
===============================

What would this four have to look like for the model to call it a nine? Images of digits show what
plausible means: a change that convinces the model may not look like a digit, and a person sees that
at once.

Each image has 8 x 8 pixels, 64 features from 0 to 1. They come with scikit-learn.
"""

import matplotlib.pyplot as plt
import pandas as pd
import torch

import plausiflow as pf
from plausiflow.methods import Nearest, Wachter

fold = pf.load_dataset("digits").fold(0)
model = pf.MLPClassifier().fit(fold.x_train, fold.y_train)
print(fold)
print(f"Accuracy on test images: {(pf.predict(model, fold.x_test) == fold.y_test).double().mean():.3f}")

# %%
# Three methods
# -------------
#
# All of them get the same model and the same target. ``Wachter`` finds the closest image that the
# model calls a nine. ``PPCEF`` also requires that it is denser than half of the nines, under an
# ensemble of flows. ``Nearest`` returns the closest real image that the model calls a nine.
#
# The ensemble has three flows here, and no margin (``confidence=None``), to build this page faster.
# By default there are five flows and a calibrated margin (:doc:`/plausibility`).

flows = pf.CrossFitEnsemble(members=3)
methods = {
    "closest": Wachter(classifier=model, distance="l2"),
    "closest and dense": pf.PPCEF(classifier=model, density=flows, confidence=None, lower=0.0, upper=1.0),
    "nearest real image": Nearest(classifier=model),
}
for method in methods.values():
    method.fit(fold.x_train, fold.y_train)

# %%
# Eight pairs of a digit and its target. The image is the first test image that the model reads as
# that digit.

pairs = [(4, 9), (3, 8), (1, 7), (5, 6), (8, 3), (9, 5), (0, 6), (7, 2)]
read = pf.predict(model, fold.x_test)
rows = torch.stack([fold.x_test[read == digit][0] for digit, _ in pairs])
targets = torch.tensor([digit for _, digit in pairs])
found = {name: method.explain(rows, targets) for name, method in methods.items()}

lines = {"image": rows} | {name: answer.x_cf for name, answer in found.items()}
figure, panels = plt.subplots(len(lines), len(pairs), figsize=(9, 5.2), layout="constrained")
for axes, (name, images) in zip(panels, lines.items(), strict=True):
    axes[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for one, image in zip(axes, images, strict=True):
        one.imshow(image.view(8, 8), cmap="gray_r", vmin=0, vmax=1)
        one.set(xticks=[], yticks=[])
for axes, (digit, other) in zip(panels[0], pairs, strict=True):
    axes.set_title(f"{digit} → {other}")

# %%
# What changed
# ------------
#
# Blue pixels get darker, red ones lighter.

figure, panels = plt.subplots(2, len(pairs), figsize=(9, 2.8), layout="constrained")
for axes, name in zip(panels, ("closest", "closest and dense"), strict=True):
    axes[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for one, change in zip(axes, found[name].x_cf - rows, strict=True):
        one.imshow(change.view(8, 8), cmap="RdBu", vmin=-1, vmax=1)
        one.set(xticks=[], yticks=[])

# %%
# In numbers
# ----------
#
# ``score`` is the log-density of the answer above the threshold of the target digit, in nats
# (:doc:`/concepts`): at least zero is plausible. Here the flows that guided PPCEF compute it.

plausibility = methods["closest and dense"].fitted_plausibility()
pd.DataFrame.from_dict(
    {
        name: {
            "decided as the target": int(answer.valid.sum()),
            "mean distance": float((answer.x_cf - rows).norm(dim=1).mean()),
            "mean score": float(plausibility.score(answer.x_cf.double(), targets).mean()),
            "plausible": int((plausibility.score(answer.x_cf.double(), targets) >= 0).sum()),
            "pixels that change": float(((answer.x_cf - rows).abs() > 1e-4).double().sum(dim=1).mean()),
        }
        for name, answer in found.items()
    },
    orient="index",
).round(2)

# %%
# Over many test images
# ---------------------
#
# The same for 100 test images. The target is the digit that the model finds second most likely.

some = fold.x_test[:100]
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for name, colour in (
    ("closest", "#ea580c"),
    ("closest and dense", "#2563eb"),
    ("nearest real image", "#9aa5b1"),
):
    answer = methods[name].explain(some, "runner_up")
    distance = (answer.x_cf - some).norm(dim=1)
    score = plausibility.score(answer.x_cf.double(), answer.y_target).clamp_min(-60)
    axes.scatter(distance, score, s=10, color=colour, label=name)
axes.axhline(0, color="#dc2626", linewidth=1, linestyle="dashed")
axes.set(xlabel="distance", ylabel="nats above the threshold (at least -60)")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
