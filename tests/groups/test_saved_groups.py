"""Saved actions: the same answers after loading, and files that are refused."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from explaining import stand_in
from plausiflow import GMM, Explainer
from plausiflow.constraints import Range
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.persistence import ArtefactError, write_json_file
from searching import ORDERS, applicants

PUSH = {"income": 4.0, "savings": 2.0, "school": 1.0}

pytestmark = pytest.mark.usefixtures("few_proposals")


@pytest.fixture(scope="module")
def frame():
    return applicants(160, missing=True).rename(index=lambda i: f"row {i}")


@pytest.fixture(scope="module")
def explainer(frame):
    return stand_in(frame, push=PUSH, radius=1.6, orders=ORDERS)


@pytest.fixture(scope="module")
def groups(explainer, frame):
    return explainer.explain_groups(
        frame.iloc[:40], "yes", groups=4, mean_cost=0.4, constraints=[Range("income", 0, 6000)]
    )


def same(one, other):
    """Whether two results have the same rows, actions, answers, verdicts and tables."""
    assert one.to_json() == other.to_json()
    pd.testing.assert_frame_equal(one.explanations.rows, other.explanations.rows)
    pd.testing.assert_frame_equal(one.explanations.answers, other.explanations.answers)
    pd.testing.assert_frame_equal(one.explanations.figures, other.explanations.figures)
    pd.testing.assert_frame_equal(one.explanations.changes, other.explanations.changes)
    pd.testing.assert_frame_equal(one.members, other.members)
    pd.testing.assert_frame_equal(one.actions, other.actions)
    return True


def test_loaded_groups_are_those_that_were_saved(groups, explainer, tmp_path):
    groups.save(tmp_path / "groups.json")
    assert (groups.action > 0).any()
    assert same(groups, explainer.load_groups(tmp_path / "groups.json"))


def test_loaded_groups_assign_new_rows_as_before(groups, explainer, frame, tmp_path):
    groups.save(str(tmp_path / "groups.json"), rows=False)
    loaded = explainer.load_groups(str(tmp_path / "groups.json"))
    assert len(loaded.action) == 0
    assert loaded.limit == groups.limit
    assert loaded.membership == groups.membership
    new = frame.iloc[60:100]
    assert (groups.assign(new).action > 0).any()
    assert same(groups.assign(new), loaded.assign(new))


def test_a_file_without_rows_has_none_of_their_cells(groups, tmp_path):
    groups.save(tmp_path / "with.json")
    groups.save(tmp_path / "without.json", rows=False)
    with_rows, without = (json.loads((tmp_path / f"{n}.json").read_text()) for n in ("with", "without"))
    assert set(with_rows) - set(without) == {"rows", "action"}
    assert "row 7" in (tmp_path / "with.json").read_text()
    assert "row 7" not in (tmp_path / "without.json").read_text()


def test_loaded_groups_can_be_saved_again(groups, explainer, tmp_path):
    groups.save(tmp_path / "first.json")
    explainer.load_groups(tmp_path / "first.json").save(tmp_path / "second.json")
    assert (tmp_path / "first.json").read_text() == (tmp_path / "second.json").read_text()


def test_groups_without_actions_can_be_saved(explainer, frame, tmp_path):
    groups = explainer.explain_groups(frame.iloc[:0], "yes")
    groups.save(tmp_path / "groups.json")
    loaded = explainer.load_groups(tmp_path / "groups.json")
    assert len(loaded) == 0
    assert set(loaded.assign(frame.iloc[:5]).uncovered["reason"]) == {"no action was found for this target"}


def fitted(target, model=None, **settings):
    numbers = applicants(200)[["age", "income"]]
    labels = pd.Series(target(numbers["income"]), index=numbers.index)
    model = make_pipeline(StandardScaler(), model or LogisticRegression()).fit(numbers, labels)
    explainer = Explainer(model, density=GMM(), confidence=None, judges=0, **settings)
    return explainer.fit(numbers, labels, verbose=False), model, numbers


def test_a_saved_explainer_assigns_the_same_rows_as_before(tmp_path):
    explainer, model, numbers = fitted(lambda income: np.where(income > 4000, "yes", "no"))
    groups = explainer.explain_groups(numbers.iloc[:60], "yes", groups=3)
    explainer.save(tmp_path / "explainer")
    groups.save(tmp_path / "groups.json")
    loaded = Explainer.load(tmp_path / "explainer", model=model).load_groups(tmp_path / "groups.json")
    assert (groups.action > 0).any()
    assert same(groups, loaded)
    assert same(groups.assign(numbers.iloc[60:]), loaded.assign(numbers.iloc[60:]))


def test_intervals_of_a_regression_are_kept(tmp_path):
    explainer, _, numbers = fitted(lambda income: income * 2.0, LinearRegression())
    groups = explainer.explain_groups(numbers.iloc[:30], (8000, None), groups=3)
    assert (groups.action > 0).any()
    assert set(groups.actions["target"]) == {"at least 8000"}
    groups.save(tmp_path / "groups.json")
    assert same(groups, explainer.load_groups(tmp_path / "groups.json"))


def test_a_directory_is_not_replaced_by_a_file(groups, tmp_path):
    (tmp_path / "kept.txt").write_text("kept")
    with pytest.raises(InvalidInputError, match="is a directory"):
        groups.save(tmp_path)
    assert (tmp_path / "kept.txt").read_text() == "kept"


def test_targets_of_single_rows_are_not_saved_but_can_be_given_to_later_rows(explainer, frame, tmp_path):
    rows = frame.iloc[:12]
    groups = explainer.explain_groups(rows, ["yes"] * 12, groups=2)
    with pytest.raises(InvalidInputError, match="the same for all rows to be saved"):
        groups.save(tmp_path / "groups.json")
    assert not (tmp_path / "groups.json").exists()
    with pytest.raises(ShapeError, match="must have 5 outcomes, one for each row"):
        groups.assign(frame.iloc[12:17])
    later = groups.assign(frame.iloc[12:17], "yes")
    later.save(tmp_path / "groups.json")
    assert same(later, explainer.load_groups(tmp_path / "groups.json"))
    assert groups.assign(rows, ["yes"] * 12).action.tolist() == groups.action.tolist()


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"push": {"income": 3.0}}, "predictions"),
        ({"radius": 1.2}, "scores"),
        ({"rules": [Range("income", 0, 5000)]}, "rules"),
    ],
)
def test_another_explainer_is_refused(groups, frame, tmp_path, other, text):
    groups.save(tmp_path / "groups.json", rows=False)
    explainer = stand_in(
        frame, other.pop("rules", ()), **({"push": PUSH, "radius": 1.6, "orders": ORDERS} | other)
    )
    with pytest.raises(InvalidInputError, match=f"differs in .*{text}"):
        explainer.load_groups(tmp_path / "groups.json")


def test_a_changed_setting_is_noticed(tmp_path):
    explainer, _, numbers = fitted(lambda income: np.where(income > 4000, "yes", "no"))
    explainer.explain_groups(numbers.iloc[:30], "yes", groups=1).save(tmp_path / "groups.json")
    explainer.distance = "l1"
    with pytest.raises(InvalidInputError, match="differs in settings"):
        explainer.load_groups(tmp_path / "groups.json")


def rewritten(path, change):
    """Change a saved document, and let its checksum be right."""
    document = json.loads(path.read_text())
    for name in ("checksum", "versions"):
        document.pop(name)
    kind, version = document.pop("kind"), document.pop("format")
    change(document)
    write_json_file(path, kind, version, document)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["fixed"]["actions"].pop("codes"),
        lambda document: document["fixed"]["actions"]["form"].append(0),
        lambda document: document["fixed"]["actions"].update(
            form=[7] * len(document["fixed"]["actions"]["form"])
        ),
        lambda document: document["fixed"]["actions"]["codes"].__setitem__(0, [99, 99, 99]),
        lambda document: document.pop("call"),
        lambda document: document.update(explainer=None),
        lambda document: document["rows"]["columns"].pop(),
        lambda document: document["rows"]["columns"][0].update(dtype="rubbish"),
        lambda document: document["fixed"].update(limit="cheap"),
    ],
)
def test_wrong_parts_are_refused(groups, explainer, tmp_path, change):
    groups.save(tmp_path / "groups.json")
    rewritten(tmp_path / "groups.json", change)
    with pytest.raises(ArtefactError, match="its parts do not fit"):
        explainer.load_groups(tmp_path / "groups.json")


def test_rows_that_get_other_actions_are_noticed(groups, explainer, tmp_path):
    groups.save(tmp_path / "groups.json")
    rewritten(tmp_path / "groups.json", lambda document: document.update(action=[0] * 40))
    with pytest.raises(InvalidInputError, match="rows now have another action"):
        explainer.load_groups(tmp_path / "groups.json")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a": 1, "a": 2}', "the same name twice"),
        (b"[]", "something else"),
        (b'{"kind": "plausiflow explainer"}', "something else"),
        (b'{"kind": "plausiflow groups", "format": 99}', "reads format 1"),
        (b'{"kind": "plausiflow groups", "format": 1, "checksum": "0"}', "checksum is wrong"),
    ],
)
def test_other_files_are_refused(explainer, tmp_path, content, text):
    path = tmp_path / "groups.json"
    path.write_bytes(content)
    with pytest.raises(ArtefactError, match=text):
        explainer.load_groups(path)


def test_a_missing_file_is_named(explainer, tmp_path):
    with pytest.raises(ArtefactError, match="cannot be opened"):
        explainer.load_groups(tmp_path / "none.json")
    with pytest.raises(ArtefactError, match="cannot be opened"):
        explainer.load_groups(tmp_path)
