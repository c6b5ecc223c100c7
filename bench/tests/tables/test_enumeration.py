"""All combinations of few changes: every answer holds on the table, and single levels are all tried."""

import numpy as np

from plausiflow.constraints import MaxChanges
from plausiflow_bench.tables.cases import study_table
from plausiflow_bench.tables.enumeration import enumerate_answers, find_enumerated, tasks_without_margin


def test_enumerated_answers_hold_on_the_decoded_rows(case):
    few = case.first_rows(8)
    (task,) = tasks_without_margin(few)
    found = enumerate_answers(task, few.engine.wider_bank, 2)
    assert len(found)
    before = few.test.x.iloc[found.rows.numpy()]
    answers = few.encoder.decode(found.x, like=before)
    wanted = [few.model.labels[k] for k in few.y_target[found.rows].tolist()]
    assert few.explainer.predict(answers).tolist() == wanted
    assert (few.explainer.score(answers, wanted) >= 0).all()
    assert not few.engine.rules.violations(before, answers).to_numpy().any()
    changed = (answers.astype(str).to_numpy() != before.astype(str).to_numpy()).sum(axis=1)
    assert set(changed) <= {1, 2}


def test_a_row_that_one_changed_level_answers_is_enumerated(case):
    few = case.first_rows(8)
    result = few.explainer.explain(few.test.x, constraints=[MaxChanges(1)])
    exists = find_enumerated(few, 1)
    numbers = set(few.test.x.select_dtypes("number").columns)
    for row in np.flatnonzero(result.is_found):
        before, after = few.test.x.iloc[row], result.answers.iloc[result.best[row]]
        changed = [name for name in few.test.x if str(before[name]) != str(after[name])]
        assert exists[row] or numbers.intersection(changed)
    assert (find_enumerated(few, 2) >= exists).all()


def test_tables_of_scikit_learn_have_a_fifth_of_their_rows_for_tests():
    train, test = study_table("wine").study_split()
    assert (len(train.x), len(test.x)) == (143, 35)
    assert set(test.y) == {"class_0", "class_1", "class_2"}
    order = np.random.default_rng(0).permutation(178)
    assert test.x.index.tolist() == order[143:].tolist()
