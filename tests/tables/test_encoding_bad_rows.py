"""Rows that cannot be encoded: a bad cell is a problem of its row alone, a bad frame is refused."""

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from encoded_tables import SCHEMA, TABLE
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema

BAD_CELLS = {
    "age": [
        ("old", "`age` is 'old', which is not a number"),
        ([1], "`age` is [1], which is not a number"),
        (pd.Timestamp("2020-01-01"), "which is not a number"),
        (1j, "which is not a number"),
        (10**400, "which is not a number"),
        (10**30, None),
        (np.inf, "`age` is inf, which is infinite"),
        ("-inf", "which is infinite"),
        (None, '`age` is None, but no training row has a missing value; missing="impute" fills it with 38'),
    ],
    "rate": [(np.nan, 'missing="impute" fills it with 0.3'), ("", "`rate` is '', which is not a number")],
    "score": [(1e100, None), (1.7e308, "`score` is 1.7e+308, too far from the training range, 0.12")],
    "sex": [
        ("Other", "`sex` is 'Other', a level that no training row has (known: 'Female', 'Male')"),
        (1, "a level that no training row has"),
        (["Male"], "a level that no training row has"),
        (None, "fills it with 'Female'"),
    ],
    "owns": [
        ("yes", "known: False, True"),
        (2, "`owns` is 2, a level"),
        (pd.NA, "no training row has a missing value"),
    ],
    "size": [("XL", "to get an answer, give the nearest of them)"), (3, "a level")],
    "debt": [(None, None), ("1e3", None), ("lots", "`debt` is 'lots', which is not a number")],
    "job": [(None, None), ("cook ", None), ("king", "known: 'clerk', 'cook', 'none'")],
    "country": [("BE", None), (np.inf, None), (None, None)],
    "id": [([1], None), (None, None)],
}


@pytest.mark.parametrize(
    ("name", "cell", "reason"), [(n, *case) for n, cases in BAD_CELLS.items() for case in cases]
)
def test_a_bad_cell_is_a_problem_of_its_row_alone(name, cell, reason):
    rows = TABLE.astype({name: object})
    rows.at[4, name] = cell
    encoder = Encoder(SCHEMA)
    encoded = encoder.encode(rows)
    assert torch.isfinite(encoded.x).all()
    others = [0, 1, 2, 3, 5]
    assert encoded.usable[others].all()
    assert torch.equal(encoded.x[others], encoder.encode(TABLE).x[others])
    assert (encoded.problems[4] is None) == (reason is None)
    assert reason is None or reason in encoded.problems[4]
    assert_frame_equal(encoder.decode(encoded.x, like=rows), rows, check_exact=True)


def test_a_row_names_all_its_problems():
    rows = TABLE.astype({"sex": object, "rate": object})
    rows.loc[0, ["sex", "rate"]] = ["Other", np.inf]
    assert Encoder(SCHEMA).encode(rows).problems[0] == (
        "`rate` is inf, which is infinite; "
        "`sex` is 'Other', a level that no training row has (known: 'Female', 'Male')"
    )


def test_a_number_too_far_away_to_be_scaled_is_a_problem():
    encoder = Encoder(Schema.infer(pd.DataFrame({"a": [1e-300, 3e-300, 2.5e-300]})))
    encoded = encoder.encode(pd.DataFrame({"a": [2e-300, 1e200]}))
    assert encoded.problems[0] is None
    assert encoded.problems[1] == "`a` is 1e+200, too far from the training range, 1e-300 to 3e-300"
    assert torch.isfinite(encoded.x).all()


@pytest.mark.parametrize("other", ["datetime64[ns]", "timedelta64[ns]", "complex128"])
def test_a_column_of_a_strange_dtype_is_a_problem_of_every_row(other):
    rows = TABLE.assign(age=TABLE["age"].astype(other))
    assert not Encoder(SCHEMA).encode(rows).usable.any()


BAD_FRAMES = {
    "not a frame": (TABLE.to_dict(), ["expected a pandas DataFrame; got dict"]),
    "columns": (
        TABLE.drop(columns=["age", "id"]).assign(more=1, target=0),
        ["are missing: 'age', 'id'", "did not have the columns 'more', 'target'; drop them"],
    ),
    "names": (pd.concat([TABLE, TABLE[["age"]]], axis=1), ["repeated: 'age'"]),
    "numbers as names": (TABLE.rename(columns={"age": 0}), ["must be text; got 0", "are missing: 'age'"]),
}


@pytest.mark.parametrize("case", BAD_FRAMES)
def test_one_error_lists_every_problem_of_a_frame(case):
    frame, expected = BAD_FRAMES[case]
    with pytest.raises(InvalidInputError) as error:
        Encoder(SCHEMA).encode(frame)
    assert [text for text in expected if text not in str(error.value)] == []


def test_rows_of_another_shape_or_not_finite_are_not_decoded():
    encoder = Encoder(SCHEMA)
    x = encoder.encode(TABLE).x
    with pytest.raises(ShapeError, match=r"shape \(6, 17\).*got \(6, 16\)"):
        encoder.decode(x[:, 1:], like=TABLE)
    with pytest.raises(ShapeError, match=r"shape \(6, 17\).*got \(5, 17\)"):
        encoder.decode(x[1:], like=TABLE)
    x[2:4, 3] = torch.nan
    with pytest.raises(InvalidInputError, match="2 of 6 rows are not"):
        encoder.decode(x, like=TABLE)


def test_what_to_do_with_missing_values_is_keep_or_impute():
    with pytest.raises(InvalidInputError, match="'keep' or 'impute'; got 'drop'"):
        Encoder(SCHEMA, missing="drop")


def test_no_rows_are_encoded_to_no_rows():
    encoder = Encoder(SCHEMA)
    encoded = encoder.encode(TABLE.iloc[:0])
    assert encoded.x.shape == (0, encoder.layout.width)
    assert_frame_equal(encoder.decode(encoded.x, like=TABLE.iloc[:0]), TABLE.iloc[:0])


def test_small_integers_as_text_are_read_as_levels():
    encoder = Encoder(Schema.infer(pd.DataFrame({"n": [1, 2, 3] * 9})))
    rows = pd.DataFrame({"n": ["1", "3.0", " 2", "four", "1.5", "nan"]})
    encoded = encoder.encode(rows)
    assert encoded.usable.tolist() == [True, True, True, False, False, False]
    assert encoded.x[:3].argmax(1).tolist() == [0, 2, 1]
    assert encoder.decode(encoded.x.roll(1, 1), like=rows)["n"].tolist()[:3] == ["2", "1", "3"]


def test_text_that_spells_a_number_is_not_taken_for_a_boolean():
    encoder = Encoder(Schema.infer(pd.DataFrame({"a": pd.Series([True, "a", "b"], dtype=object)})))
    assert encoder.encode(pd.DataFrame({"a": ["1", "a"]})).usable.tolist() == [False, True]
