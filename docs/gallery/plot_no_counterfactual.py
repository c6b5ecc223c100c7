"""
When no counterfactual exists
=============================

Some rows have no answer: the rules forbid every change, or what they allow is not plausible. Then
the verdict says so, and why. This example adds rules until rows have no answer, and shows what the
result says about them: the verdict, the rule that blocks, and the nearest miss.

``confidence=None`` and ``judges=0`` make this page faster.
"""

import matplotlib.pyplot as plt
import pandas as pd

import plausiflow as pf

train, test = pf.load_table("loans").split(600, 200)
rules = [pf.Immutable("age", "sex"), pf.Increasing("education"), pf.Linear("loan_amount <= 0.6 * income")]
model = pf.MLPClassifier(hidden=(64, 64))
explainer = pf.Explainer(model, constraints=rules, confidence=None, judges=0).fit(train.x, train.y)
rejected = test.x[explainer.predict(test.x) == "rejected"].iloc[:12]
print(explainer.explain(rejected, target="granted"))

# %%
# Fewer changes
# -------------
#
# The same rejected applications, with fewer and fewer features that may change. A credit score takes
# years, so it is locked.


def explain(most, **settings):
    limit = [pf.MaxChanges(most)]
    return explainer.explain(rejected, "granted", constraints=limit, locked=["credit_score"], **settings)


limits = [3, 2, 1]
results = {most: explain(most) for most in limits}
counts = pd.DataFrame({m: one.status["status"].value_counts() for m, one in results.items()}).fillna(0).T

figure, axes = plt.subplots(figsize=(6.5, 3), layout="constrained")
start = 0
for status, colour in (("found", "#2563eb"), ("infeasible", "#ea580c")):
    if status in counts:
        axes.barh([f"at most {m}" for m in limits], counts[status], left=start, color=colour, label=status)
        start = start + counts[status].to_numpy()
axes.invert_yaxis()
axes.set(xlabel="rejected applications", ylabel="changes allowed")
axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
axes.spines[["top", "right"]].set_visible(False)

# %%
# Which rule blocks
# -----------------
#
# For a row without an answer, the search runs again without each rule. If it then finds an answer, the
# reason names the rule. Otherwise it says how far the nearest miss is below the threshold.

strict = results[2]
without = strict.status[strict.status["status"] == "infeasible"]
without["reason"].str.replace(r"is [\d.]+ below", "is below", regex=True).value_counts().to_frame("rows")

# %%
# ``infeasible`` means that a bounded search found no answer; it is not a proof.
#
# The nearest miss
# ----------------
#
# A miss has the target outcome and breaks no rule, but it is not plausible enough. It is stored apart
# from the answers, with the distance to the threshold. A row that a limit on changes alone blocks has
# that as its reason, and no miss unless ``relaxed=True`` asks for it.

missed = [i for i in range(len(strict)) if strict[i].misses]
print(f"{len(missed)} of {len(without)} rows without an answer have a nearest miss.")
one = strict[missed[0]]
miss, lack = one.misses[0]
print(f"Row {one.row}: {lack}.")
pd.DataFrame({"is": one.factual, "would be": miss})[lambda table: table["is"] != table["would be"]]

# %%
# Relaxed
# -------
#
# With ``relaxed=True`` the misses are returned as answers. Their verdict is ``relaxed``, never
# ``found``, and their score is negative.

relaxed = explain(2, relaxed=True)
print(relaxed)
status = relaxed.status["status"].iloc[relaxed.of].to_numpy()
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for name, colour in (("found", "#2563eb"), ("relaxed", "#ea580c")):
    some = relaxed.figures[status == name]
    axes.scatter(some["score"], some["cost"], s=18, color=colour, label=name)
axes.axvline(0, color="#dc2626", linewidth=1, linestyle="dashed")
axes.set(xlabel="plausibility score", ylabel="cost of the change")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)

# %%
# You can allow more changes, require less (``Explainer(plausibility=0.2)`` requires a row denser than
# a fifth of the real ones), or say that there is no plausible answer.
#
# The other verdicts
# ------------------
#
# A row can also have the target outcome already, be unreadable, or not be reached in time. None of
# these raises an error, and the other rows are explained.

odd = rejected.iloc[:2].copy()
odd["job"] = odd["job"].astype(object)
odd.iloc[0, odd.columns.get_loc("job")] = "astronaut"
granted = test.x[explainer.predict(test.x) == "granted"].iloc[:1]
mixed = explainer.explain(pd.concat([odd, granted.astype({"job": object})]), target="granted")
mixed.status[["status", "reason", "predicted", "target"]]

# %%
late = explainer.explain(rejected.iloc[:3], target="granted", time_limit=0)
late.status[["status", "reason"]]
