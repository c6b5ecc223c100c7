"""
A report on a portfolio
=======================

An audit is about all rows of a portfolio: who gets an answer, what would have to change, how much,
and how plausible the answers are. This example explains a portfolio, writes the report for people
who do not read code, and draws its main figures.

The portfolio is heloc, lines of credit on homes with 23 numbers each, if its file is available
(:doc:`/tables`). Otherwise it is the generated table of loans; the first line of the output says so.
"""

import re
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import plausiflow as pf
from plausiflow.errors import DataNotFoundError

try:
    table, target, rows = pf.load_table("heloc"), "Good", 500
except DataNotFoundError:
    table, target, rows = pf.load_table("loans"), "granted", 600
    print("The file of heloc was not found; this page was built with the generated table of loans instead.")
train, test = table.split(rows, 80)
print(f"{table}: {len(train.x)} rows to learn from, {len(test.x)} in the portfolio")
print(f"Target: {table.target} is {target}")

# %%
# The explainer
# -------------
#
# The table knows which columns nobody can change, and which may only increase. heloc has none.

rules = [pf.Immutable(name) for name in table.immutable] + [pf.Increasing(name) for name in table.increasing]
explainer = pf.Explainer(pf.MLPClassifier(hidden=(64, 64)), constraints=rules, judges=2).fit(train.x, train.y)
result = explainer.explain(test.x, target=target)
result

# %%
# The report
# ----------
#
# One HTML file that needs no network and no other file. It has a summary, and a card for every row;
# cards can be searched, filtered and sorted (:doc:`/report`).

folder = Path(tempfile.mkdtemp())
result.to_html(folder / "report.html", title="Portfolio")
text = (folder / "report.html").read_text(encoding="utf-8")
parts = re.findall("<h2[^>]*>([^<]+)</h2>", text)
print(f"{len(text) / 1e6:.1f} MB; its parts: {', '.join(parts)}")

# %%
# Its summary, as text:

print(result.summary())

# %%
# Who gets an answer
# ------------------
#
# Here rows are grouped by the model's probability of the target outcome. Rows above one half already
# have that outcome and need no answer.

chance = result.status["probability"]
bands = pd.cut(
    chance, [0, 0.1, 0.25, 0.5, 1], labels=["below 10 %", "10 to 25 %", "25 to 50 %", "above 50 %"]
)
result.summary(by=bands.rename("probability of the target outcome")).groups.round(3)

# %%
# What changes, and how much
# --------------------------
#
# Left: the features that answers change most often. Right: the cost of the answers, in units of the
# ranges of the features.

features = result.summary().features.droplevel(0)
often = features["share"].sort_values(ascending=False).head(10)[::-1]
costs = result.figures["cost"]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", width_ratios=[1.4, 1])
left.barh(often.index, often, color="#2563eb")
left.set(title="Share of the answers that change a feature", xlim=(0, 1))
right.hist(costs, bins=20, color="#2563eb")
right.axvline(costs.median(), color="#ea580c")
right.set(title=f"Cost of the answers (median {costs.median():.2f})", ylabel="answers")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)

# %%
# How plausible the answers are
# -----------------------------
#
# ``held_out`` has the percentiles of the plausibility scores of real rows with the target outcome,
# each under a density that had not seen it; zero is the threshold, here their median. Answers are
# above it by a margin, so that independent densities agree (:doc:`/concepts`). The score of an answer
# is a mean over several densities and varies less than that of a real row, so this is a comparison,
# not a test.

real = result.held_out[list(result.labels).index(target)]
answers = np.sort(result.figures["score"])
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.plot(real, np.linspace(0, 1, len(real)), color="#9aa5b1", label=f"real rows that are {target}")
axes.plot(answers, np.linspace(0, 1, len(answers)), color="#2563eb", label="answers")
axes.axvline(0, color="#dc2626", linewidth=1, linestyle="dashed", label="threshold")
axes.set(xlabel="plausibility score", ylabel="share below", xlim=(real[2], max(real[-1], answers[-1]) + 1))
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)

# %%
# The share of judges that accept an answer, beside other means over all answers:

result.metrics()[["coverage", "plausibility", "judged", "cost", "n_changes", "l2"]].to_frame("mean").round(3)
