"""
Figures of a result
===================

One figure for each question: what changes for one row, what each change does, how cost and
plausibility trade off, where the row is on a map, and how rows and groups differ. Every function takes
axes (``axes=``) and returns them, so that figures of a paper are put together with matplotlib. Without
``axes``, it makes a figure of its own.
"""

import matplotlib.pyplot as plt

import plausiflow as pf

train, test = pf.load_table("loans").split(1000, 150)
suggested = pf.suggest_rules(train.x)
explainer = pf.Explainer(
    pf.MLPClassifier(hidden=(32, 32)),
    constraints=[*suggested.constraints, pf.Linear("loan_amount <= 0.6 * income")],
    steps=suggested.steps,
    confidence=0.9,
)
explainer.fit(train.x, train.y)
rejected = test.x[explainer.predict(test.x) == "rejected"]
result = explainer.explain(rejected, target="granted", k=3)
i = int(result.is_found.nonzero()[0][0])

# %%
# One row
# -------
#
# In a notebook, the row and its answers are shown side by side, with the features that change.

result[i]

# %%
# The changes of the best answer, in units of each feature's range, and what each of them does to the
# probability, one after the other.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.4), layout="constrained")
result.plot(i, axes=left)
axes = result.plot_changes(i, axes=right)

# %%
# Where the row and its answer are on the plane of two numbers, all others as in the answer. Without
# names, the axes are the numbers that the answer moves most.

figure, axes = plt.subplots(figsize=(7, 4.6), layout="constrained")
axes = result.plot_map(i, axes=axes)

# %%
# All rows
# --------
#
# Which features change, in which direction and how much: one dot for each row.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes = result.plot_population(axes=axes)

# %%
# Cost against plausibility. A hollow dot is an answer that not all independent checks accept.

figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
axes = result.plot_tradeoff(axes=axes)

# %%
# Groups
# ------
#
# The mean cost in each group, with a bootstrap interval. An audit tests the differences:
# :doc:`/guide/audit`.

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes = result.plot_groups(["sex", "owns_home"], axes=axes)

# %%
# A few actions for all of these rows, and how many rows each helps: :doc:`/guide/groups`.

groups = explainer.explain_groups(rejected, "granted", groups=3)
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
axes = groups.plot(axes=axes)
