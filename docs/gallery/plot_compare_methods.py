"""
Comparing methods
=================

All methods have the same ``fit`` and ``explain``, so a fair comparison is short: the same model, the
same rows, the same judges. This example runs all methods on breast cancer (30 measurements of a
tumour, two diagnoses) and compares how close and how plausible their answers are.

This is one data set, one split and one linear model. The whole evaluation of the paper is in
:doc:`/benchmark`; :doc:`/methods` describes the methods, :doc:`/concepts` the terms.
"""

import matplotlib.pyplot as plt
import pandas as pd
import torch

import plausiflow as pf
from plausiflow.core.metrics import Context, evaluate
from plausiflow_bench.methods import METHODS

fold = pf.load_dataset("breast_cancer").fold(0)
model = pf.LinearClassifier().fit(fold.x_train, fold.y_train)
density = pf.ConditionalFlow().fit(fold.x_train, fold.y_train)
plausibility = pf.Thresholded(density=density).fit(fold.x_train, fold.y_train)
judges = pf.Judges().fit(fold.x_train, fold.y_train)
print(fold)

# %%
# The methods
# -----------
#
# Each gets the model and the density; methods without a density use it only for the verdict. Two
# methods use the latent space of a flow of all rows, which is trained once for both. PPCEF runs
# twice: with the one flow that measures all methods, and with its default, an ensemble and a margin.

flow = pf.ConditionalFlow(architecture="realnvp")
flow.fit(fold.x_train, torch.zeros_like(fold.y_train), n_classes=1)
box = {"lower": 0.0, "upper": 1.0}
settings = {"ppcef": box, "artelt": box, "diffeomorphic": {"flow": flow}, "ceflow": {"flow": flow}}
methods = {
    name: method(classifier=model, plausibility=plausibility, **settings.get(name, {}))
    for name, method in METHODS.items()
}
methods["ppcef (ensemble)"] = pf.PPCEF(classifier=model, **box)

answers = {}
for name, method in methods.items():
    answers[name] = method.fit(fold.x_train, fold.y_train).explain(fold.x_test)
    print(f"{name:<17}{answers[name]}")

# %%
# The table
# ---------
#
# ``plausibility`` is the share of answers that are plausible under the common flow. That flow guided
# PPCEF and chose the rows of ``nnce_dense``, so their share is high by construction. ``judged`` is the
# same share under three flows that guided no method; compare this one. ``sparsity`` is the share of
# features that change; ``lof_target`` is the local outlier factor among rows of the target class,
# about one for an inlier.

context = Context(
    classifier=model, plausibility=plausibility, judges=judges, x_train=fold.x_train, y_train=fold.y_train
)
names = [
    "coverage",
    "validity",
    "plausibility",
    "judged",
    "l1",
    "l2",
    "sparsity",
    "lof_target",
    "cpu_seconds",
]
table = pd.DataFrame({name: evaluate(found, context, names=names) for name, found in answers.items()}).T
table.sort_values("judged", ascending=False).round(3)

# %%
# Close and plausible
# -------------------
#
# Up and to the left is better: close to the row, and accepted by independent flows. PPCEF with one
# flow stops where that flow just agrees, and other flows often disagree; the margin of the ensemble
# corrects that (:doc:`/plausibility`).

figure, axes = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
for name, line in table.iterrows():
    ours = name.startswith("ppcef")
    axes.scatter(line["l2"], line["judged"], s=46, color="#2563eb" if ours else "#9aa5b1")
    axes.annotate(name, (line["l2"], line["judged"]), (6, 4), textcoords="offset points", fontsize=9)
axes.set(xlabel="mean distance (L2)", ylabel="share that independent flows accept", ylim=(-0.05, 1.08))
axes.margins(x=0.12)
axes.spines[["top", "right"]].set_visible(False)

# %%
# Row by row
# ----------
#
# Means hide details. Each box is the log-density of a method's answers above the threshold, in nats;
# answers to the right of the line are plausible.

order = table.sort_values("judged").index
scores = [
    plausibility.score(answers[name].x_cf.double(), answers[name].y_target)[answers[name].found].clamp_min(
        -80
    )
    for name in order
]
figure, axes = plt.subplots(figsize=(7.5, 5), layout="constrained")
axes.boxplot(
    [score.tolist() for score in scores], orientation="horizontal", tick_labels=list(order), showfliers=False
)
axes.axvline(0, color="#dc2626", linewidth=1, linestyle="dashed")
axes.set(xlabel="log-density above the threshold (nats, at least -80)")
axes.spines[["top", "right"]].set_visible(False)
