"""Principal reasons: ranking, near-optimal counterfactuals, reason codes, bad input."""

import numpy as np
import pandas as pd
import pytest

from plausiflow.errors import InvalidInputError
from plausiflow.explanations import Explanation
from plausiflow.explanations.reasons import read_reason_codes


def explanation(cells, cost):
    """Return an explanation from (rank, feature, move, role) cells and the cost of each rank."""
    changes = pd.DataFrame(
        [(rank, name, 0, 1, role) for rank, name, _, role in cells],
        columns=["rank", "feature", "from", "to", "role"],
    )
    figures = pd.DataFrame({"cost": cost}, index=pd.Index(range(1, len(cost) + 1), name="rank"))
    row = pd.Series(dict.fromkeys("abc", 0))
    return Explanation(
        row=0, status="found", reason="", predicted=0, target=1, probability=0.1, sentence="", factual=row,
        counterfactuals=[], figures=figures, changes=changes, misses=[],
        moves=np.array([move for _, _, move, _ in cells]),
    )  # fmt: skip


def test_reasons_are_needed_features_by_the_size_of_their_move():
    cells = [(1, "a", 0.1, "needed"), (1, "b", -0.3, "needed"), (1, "c", 0.9, "accompanying")]
    reasons = explanation(cells, [1.0]).reasons()
    assert [reason.feature for reason in reasons] == ["b", "a"]
    assert reasons[0].weight == pytest.approx(0.75)


def test_a_feature_that_few_near_optimal_counterfactuals_need_is_no_principal_reason():
    cells = [(1, "a", 0.1, "needed"), (1, "b", 0.9, "needed"), (2, "a", 0.2, "needed")]
    assert [reason.feature for reason in explanation(cells, [1.0, 1.1]).reasons()] == ["a"]


def test_expensive_counterfactuals_do_not_count():
    cells = [(1, "a", 0.1, "needed"), (1, "b", 0.9, "needed"), (2, "a", 0.2, "needed")]
    assert len(explanation(cells, [1.0, 2.0]).reasons()) == 2


def test_at_most_as_many_reasons_as_asked_for():
    cells = [(1, name, 0.1, "needed") for name in "abcdef"]
    assert len(explanation(cells, [1.0]).reasons()) == 4
    assert len(explanation(cells, [1.0]).reasons(max=2)) == 2


def test_a_row_without_a_counterfactual_has_no_reasons():
    assert explanation([], []).reasons() == []


def test_codes_and_texts_come_from_a_file_in_any_language(tmp_path):
    path = tmp_path / "codes.toml"
    path.write_text(
        '[a.up]\ncode = "R7"\ntext = "{feature} zu niedrig"\n[b]\ncode = "R8"\n', encoding="utf-8"
    )
    reasons = explanation([(1, "a", 0.5, "needed"), (1, "b", 0.1, "needed")], [1.0]).reasons(codes=path)
    assert [(reason.code, reason.text) for reason in reasons] == [("R7", "a zu niedrig"), ("R8", "b: 0 → 1")]


@pytest.mark.parametrize("text", ["a = 3", "[a]\ncode = 3", "[a", '[a]\nname = "x"'])
def test_a_bad_file_of_codes_is_refused(tmp_path, text):
    path = tmp_path / "codes.toml"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match="must be"):
        read_reason_codes(path)


def test_a_bad_number_of_reasons_is_refused():
    with pytest.raises(InvalidInputError, match="`max` must be a whole number"):
        explanation([], []).reasons(max=0)


def test_without_a_feature_that_all_need_the_reasons_weigh_nearly_all():
    cells = [(1, "a", 0.5, "needed"), (1, "c", 0.1, "needed"), (2, "b", 0.3, "needed")]
    reasons = explanation(cells, [1.0, 1.1]).reasons()
    assert [reason.feature for reason in reasons] == ["b", "a"]  # 0.5 and 5/12; "c" weighs 1/12
    assert sum(reason.weight for reason in reasons) == pytest.approx(11 / 12)


def test_codes_may_be_a_mapping_and_are_checked_like_a_file():
    one = explanation([(1, "a", 0.5, "needed")], [1.0])
    codes = {"a": {"up": {"code": "R7", "text": "low"}, "code": "R1"}}
    assert [(reason.code, reason.text) for reason in one.reasons(codes=codes)] == [("R7", "low")]
    with pytest.raises(InvalidInputError, match="must be a table with the texts"):
        one.reasons(codes={"a": "R7"})


def test_a_code_of_no_feature_is_refused_and_a_similar_name_suggested(tmp_path):
    path = tmp_path / "codes.toml"
    path.write_text('[aa.up]\ncode = "R7"')
    with pytest.raises(InvalidInputError, match=r"there is no feature 'aa' \(did you mean 'a'\?\)"):
        explanation([(1, "a", 0.5, "needed")], [1.0]).reasons(codes=path)


def test_a_file_of_codes_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"none.toml is not: No such file .* Check its path"):
        read_reason_codes(tmp_path / "none.toml")


def test_values_of_reasons_are_plain():
    (reason,) = explanation([(1, "a", 0.5, "needed")], [1.0]).reasons()
    assert {type(reason.before), type(reason.after)} <= {int, float, str, bool}
