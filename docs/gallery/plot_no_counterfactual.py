"""
When no counterfactual exists
=============================

Some questions have no answer: the rules forbid every way out, or what they allow is nothing that
could be real. Then the verdict must say so, and say why. This example makes questions harder until
rows run out of answers, and shows what the result tells about them: the verdict, the rule that
blocks, the nearest miss, and that miss as an answer of last resort.

It asks for no second opinion (``confidence=None``, ``judges=0``), to be built in little time.
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
# Harder and harder
# -----------------
#
# The same rejected applications, and fewer and fewer features that may change.

limits = [3, 2, 1]
results = {m: explainer.explain(rejected, target="granted", constraints=[pf.MaxChanges(m)]) for m in limits}
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
# For a row without an answer the search runs again without each rule in turn. Where that helps, the
# reason names the rule; where no single rule is to blame, it says how far the nearest allowed row
# is from plausible.

strict = results[1]
without = strict.status[strict.status["status"] == "infeasible"]
without["reason"].str.replace(r"[\d.]+ nats", "some nats", regex=True).value_counts().to_frame("rows")

# %%
# ``infeasible`` means that a thorough search found nothing; it is no proof that there is nothing.
#
# The nearest miss
# ----------------
#
# A miss is decided as wanted and keeps every rule; it is only not plausible enough. It is kept
# beside the row, apart from the answers, with what it lacks.

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
# Where something is better than nothing, ``relaxed=True`` makes the misses answers. Their verdict
# is ``relaxed``, never ``found``, and their score, negative, says by how much they fall short.

relaxed = explainer.explain(rejected, target="granted", constraints=[pf.MaxChanges(1)], relaxed=True)
print(relaxed)
status = relaxed.status["status"].iloc[relaxed.of].to_numpy()
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for name, colour in (("found", "#2563eb"), ("relaxed", "#ea580c")):
    some = relaxed.figures[status == name]
    axes.scatter(some["score"], some["cost"], s=18, color=colour, label=name)
axes.axvline(0, color="#dc2626", linewidth=1, linestyle="dashed")
axes.set(xlabel="nats above the threshold", ylabel="cost of the change")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)

# %%
# Three ways on: allow more changes; ask for less (``plausibility=0.2``, when the explainer is made,
# asks for a row denser than a fifth of the real ones); or tell people that there is no honest answer.
#
# The other verdicts
# ------------------
#
# A row can also be as wanted already, not readable, or not reached in the time given. None of these
# raises an error, and the rows beside it are explained.

odd = rejected.iloc[:2].copy()
odd["job"] = odd["job"].astype(object)
odd.iloc[0, odd.columns.get_loc("job")] = "astronaut"
granted = test.x[explainer.predict(test.x) == "granted"].iloc[:1]
mixed = explainer.explain(pd.concat([odd, granted.astype({"job": object})]), target="granted")
mixed.status[["status", "reason", "predicted", "target"]]

# %%
late = explainer.explain(rejected.iloc[:3], target="granted", time_limit=0)
late.status[["status", "reason"]]
