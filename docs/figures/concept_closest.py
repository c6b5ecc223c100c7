"""An applicant: the closest application that the model grants, and the closest one that could be real."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import plausiflow as pf
from plausiflow.plots import ACCENT, INK, QUIET, WARM

NAMES = ["income", "loan_amount"]

warnings.simplefilter("ignore")  # few columns: the model and the density know less than they could
train, test = pf.load_table("loans").split(800, 200)
x, model = train.x[NAMES], pf.MLPClassifier(hidden=(16,), random_state=0)
real = pf.Explainer(model, confidence=None).fit(x, train.y, effort="quick", verbose=False)
near = pf.Explainer(real.model, plausibility=0.0, confidence=None, judges=0).fit(x, train.y, verbose=False)
rows = test.x[NAMES][np.ravel(real.predict(test.x[NAMES])) == "rejected"]
closest = near.explain(rows, "granted", verbose=False)
plausible = real.explain(rows, "granted", verbose=False)
score = pd.Series(np.nan, index=range(len(rows)))
both = np.flatnonzero((closest.best >= 0) & (plausible.best >= 0))
score[both] = np.ravel(real.score(closest.answers.iloc[closest.best[both]], "granted"))
i = int(score.idxmin())  # the applicant whose closest change is the least plausible

figure, axes = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
for outcome, colour in (("rejected", QUIET), ("granted", WARM)):
    own = x[train.y == outcome]
    axes.scatter(
        *own.to_numpy().T, s=7, color=colour, alpha=0.45, linewidths=0, label=f"{outcome} in the past"
    )
first, second = np.meshgrid(np.linspace(*axes.get_xlim(), 120), np.linspace(*axes.get_ylim(), 120))
grid = pd.DataFrame({"income": first.ravel().round(), "loan_amount": second.ravel().round()}).astype(int)
granted = real.predict_proba(grid)["granted"].to_numpy().reshape(first.shape)
axes.contour(first, second, granted, levels=[0.5], colors=ACCENT, linewidths=1.5)
start = rows.iloc[i].to_numpy()
for result, colour, text in ((closest, INK, "closest"), (plausible, WARM, "closest that could be real")):
    end = result.answers[NAMES].iloc[result.best[i]].to_numpy()
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": "->", "color": colour, "shrinkA": 5, "shrinkB": 5}
    )
    axes.plot(*end, "o", markersize=8, color=colour, markeredgecolor="white")
    axes.annotate(text, end, (8, 8), textcoords="offset points", fontsize=9)
axes.plot(
    *start, "o", markersize=9, color="white", markeredgecolor=INK, markeredgewidth=1.5, label="applicant"
)
axes.plot([], [], color=ACCENT, label="the model grants on one side")
axes.set(xlabel="income", ylabel="loan amount")
axes.legend(fontsize=8, loc="upper left")
axes.spines[["top", "right"]].set_visible(False)
