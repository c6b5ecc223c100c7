"""
A credit decision, with rules
=============================

A model rejects a loan application, and the applicant asks what would have to be different. An
answer helps only if it is allowed (nobody gets younger), consistent (a loan that fits the income)
and plausible. This example explains rejected applications under such rules, checks the answers by
hand, and explains them again with more rules.

The table is generated and has numbers and categories: :doc:`/tables`.
"""

import matplotlib.pyplot as plt
import pandas as pd

import plausiflow as pf

train, test = pf.load_table("loans").split(600, 150)
train.x.head()

# %%
# The rules
# ---------
#
# Features that nobody can change are immutable. Education may only increase. A loan may not exceed
# 0.6 of the yearly income. All rules are hard; :doc:`/explainer` lists all of them.

rules = [
    pf.Immutable("age", "sex"),
    pf.Increasing("education"),
    pf.Linear("loan_amount <= 0.6 * income"),
]
explainer = pf.Explainer(pf.MLPClassifier(hidden=(64, 64)), constraints=rules).fit(train.x, train.y)
explainer

# %%
# ``fit`` has trained the network, four densities that guide searches, and three judges. Pass your own
# model in the same place: :doc:`/models`.

decided = explainer.predict(test.x)
print(f"The model decides {(decided == test.y).mean():.0%} of the test rows as they were decided.")
rejected = test.x[decided == "rejected"].iloc[:20]
print(f"{len(rejected)} rejected applications to explain.")

# %%
# Answers
# -------
#
# Every row gets a verdict. The sentences are for the applicants.

result = explainer.explain(rejected, target="granted")
print(result)
for label, sentence in result.sentences.iloc[:6].items():
    print(f"{label}: {sentence}")

# %%
# One answer as a figure. Bars are shares of each feature's range, so an income and a score can be
# compared. (In a notebook, ``result.plot(0)`` alone shows it.)

positions = [i for i in range(len(result)) if result[i].status == "found"]
_, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes = result.plot(positions[0], axes=axes)

# %%
# What each change does to the probability, one after the other. The dashed line is the probability now.

_, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes = result.plot_changes(positions[0], axes=axes)

# %%
# Which features change, in which direction and how much: one dot for each row.

_, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes = result.plot_population(axes=axes)

# %%
# Check them
# ----------
#
# An answer is found only after the decoded row has passed the model, the density and every rule. You
# can check that yourself.

answers = result.alternatives.droplevel("rank")
rows = rejected.loc[answers.index]
checks = {
    "the model grants it": explainer.predict(answers) == "granted",
    "age and sex are the same": (answers[["age", "sex"]] == rows[["age", "sex"]]).all(axis=1),
    "education is not lower": answers["education"] >= rows["education"],
    "the loan fits the income": answers["loan_amount"] <= 0.6 * answers["income"] + 1e-6,
    "it is plausible": explainer.score(answers, "granted") >= 0,
}
pd.DataFrame({"answers": len(answers), "hold": {name: int(holds.sum()) for name, holds in checks.items()}})

# %%
# What changes over all applications, by sex:

print(result.summary(by="sex"))

# %%
# More rules
# ----------
#
# The same explainer takes more rules without another training: fewer changes, features that stay, a
# range.

requests = {
    "as above": {},
    "at most two changes": {"constraints": [pf.MaxChanges(2)]},
    "income and loan stay": {"locked": ["income", "loan_amount"]},
    "score at most 700": {"constraints": [pf.Range("credit_score", None, 700)]},
}
results = {name: explainer.explain(rejected, target="granted", **more) for name, more in requests.items()}
pd.DataFrame.from_dict(
    {
        name: {
            "found": int((one.status["status"] == "found").sum()),
            "mean cost": one.figures["cost"].mean(),
            "mean number of changes": one.figures["n_changes"].mean(),
            "judges that accept": one.figures["judged"].mean(),
        }
        for name, one in results.items()
    },
    orient="index",
).round(2)

# %%
# With more rules, fewer rows have an answer. Means are over the rows that have one, so they do not
# compare the same rows. What the answers change:

shares = pd.DataFrame({name: one.summary().features["share"].droplevel(0) for name, one in results.items()}).T
shares = shares.loc[:, shares.max() > 0]
figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
axes.set_xticks(range(shares.shape[1]), [name.replace("_", "\n") for name in shares.columns])
axes.set_yticks(range(shares.shape[0]), shares.index)
axes.set_title("Share of the answers in which a feature changes")
for i, line in enumerate(shares.to_numpy()):
    for j, share in enumerate(line):
        axes.text(
            j,
            i,
            f"{share:.0%}",
            ha="center",
            va="center",
            color="white" if share > 0.6 else "black",
            fontsize=8,
        )

# %%
# Several answers
# ---------------
#
# ``k`` is the number of answers, which differ from each other. For the first applicant:

several = explainer.explain(rejected.iloc[[positions[0]]], target="granted", k=3)
several[0].changes.pivot(index="feature", columns="rank", values="to").fillna("")

# %%
# Their cost, the model's probability of the target, and the share of the judges that accept them:

several[0].figures[["cost", "n_changes", "probability", "judged"]].round(3)
