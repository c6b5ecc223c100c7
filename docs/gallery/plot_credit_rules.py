"""
A credit decision, with rules
=============================

A model rejects a loan application, and the applicant asks what would have to be different. An
answer helps only if it is allowed (nobody gets younger), fits together (a loan that the income
carries) and could be real. This example explains rejected applications under such rules, checks the
answers by hand, and asks again with further wishes.

The table is generated, numbers and categories mixed: :doc:`/tables`.
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
# What nobody can change stays as it is. Education may only rise. And no
# loan may exceed 0.6 of the yearly income. All rules are hard; :doc:`/explainer` lists the kinds
# there are.

rules = [
    pf.Immutable("age", "sex"),
    pf.Increasing("education"),
    pf.Linear("loan_amount <= 0.6 * income"),
]
explainer = pf.Explainer(pf.MLPClassifier(hidden=(64, 64)), constraints=rules).fit(train.x, train.y)
explainer

# %%
# ``fit`` has trained the network, four densities that guide searches and three that only judge.
# Your own model goes in the same place, as it is: :doc:`/models`.

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
# One answer in a picture. Bars are in units of each feature's range, so that an income and a score
# can be compared. (``plt.figure`` takes a figure over from matplotlib 3.11 on; in a notebook,
# ``result.plot(0)`` alone shows it.)

positions = [i for i in range(len(result)) if result[i].status == "found"]
figure = plt.figure(result.plot(positions[0]))

# %%
# Check them
# ----------
#
# An answer is called found only after the row, as it stands in the table, has passed the model, the
# density and every rule. Nothing keeps you from checking that again.

answers = result.alternatives.droplevel("rank")
rows = rejected.loc[answers.index]
checks = {
    "the model grants it": explainer.predict(answers) == "granted",
    "age and sex are the same": (answers[["age", "sex"]] == rows[["age", "sex"]]).all(axis=1),
    "education is not lower": answers["education"] >= rows["education"],
    "the income carries the loan": answers["loan_amount"] <= 0.6 * answers["income"] + 1e-6,
    "it is dense enough": explainer.score(answers, "granted") >= 0,
}
pd.DataFrame({"answers": len(answers), "hold": {name: int(holds.sum()) for name, holds in checks.items()}})

# %%
# What changes, over all applications, and how the two sexes fare:

print(result.summary(by="sex"))

# %%
# Ask again
# ---------
#
# The same explainer answers other questions without training anew: fewer changes, features that
# this applicant will not touch, a range that holds today only.

questions = {
    "as above": {},
    "at most two changes": {"constraints": [pf.MaxChanges(2)]},
    "income and loan stay": {"locked": ["income", "loan_amount"]},
    "score at most 700": {"constraints": [pf.Range("credit_score", None, 700)]},
}
asked = {name: explainer.explain(rejected, target="granted", **more) for name, more in questions.items()}
pd.DataFrame.from_dict(
    {
        name: {
            "found": int((one.status["status"] == "found").sum()),
            "mean cost": one.figures["cost"].mean(),
            "mean number of changes": one.figures["n_changes"].mean(),
            "judges that accept": one.figures["judged"].mean(),
        }
        for name, one in asked.items()
    },
    orient="index",
).round(2)

# %%
# The more is forbidden, the fewer rows have an answer. SearchContext are over the rows that have one: they do
# not compare the same rows. What the answers change:

shares = pd.DataFrame({name: one.summary().features["share"].droplevel(0) for name, one in asked.items()}).T
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
# Several ways
# ------------
#
# ``k`` asks for several answers that differ from each other. For the first applicant:

several = explainer.explain(rejected.iloc[[positions[0]]], target="granted", k=3)
several[0].changes.pivot(index="feature", columns="rank", values="to").fillna("")

# %%
# and what each of them costs, how sure the model is of it, and which share of the judges accepts
# it:

several[0].figures[["cost", "n_changes", "probability", "judged"]].round(3)
