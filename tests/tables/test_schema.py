"""Schemas: kinds of small hand-made columns and of the real tables, grids against their makers, bad input."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plausiflow.errors import InvalidInputError
from plausiflow.tables.features import Feature
from plausiflow.tables.grids import find_grid, round_to_grid
from plausiflow.tables.schema import Schema, SchemaWarning

RNG = np.random.default_rng(0)
N = 100


def infer(column, **settings) -> Feature:
    return Schema.infer(pd.DataFrame({"a": column}), **settings).features[0]


def quietly(frame, **settings) -> Schema:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)
        return Schema.infer(frame, **settings)


def shuffled(values):
    return RNG.permutation(np.asarray(values))


SIZES = ["S", "M", "L"]
KINDS = {
    "bool": (shuffled([True, False] * 50), "boolean"),
    "nullable boolean": (pd.array([True, None] * 49 + [False, True], dtype="boolean"), "boolean"),
    "booleans as objects": (pd.Series([True, False, None] * 30, dtype=object), "boolean"),
    "text": (["red", "green"] * 50, "category"),
    "string dtype": (pd.array(["red", "green"] * 50, dtype="string"), "category"),
    "mixed objects": (pd.Series(["red", 1, 2.5, True] * 20, dtype=object), "category"),
    "categorical": (pd.Categorical(["red", "green"] * 50), "category"),
    "ordered categorical": (pd.Categorical(SIZES * 30, categories=SIZES, ordered=True), "ordered"),
    "small integers": (shuffled([1, 2, 3, 4] * 25), "ordered"),
    "small integers that may miss": (np.array([1.0, 2.0, np.nan, 4.0] * 25), "ordered"),
    "a few numbers in few rows": ([31, 54, 47, 31], "integer"),
    "eleven integers": (shuffled(np.arange(110) % 11), "integer"),
    "integers": (RNG.integers(0, 1000, N), "integer"),
    "integers as objects": (pd.Series(RNG.integers(0, 60, N).tolist(), dtype=object), "integer"),
    "nullable integers": (pd.array([*RNG.integers(0, 60, N).tolist(), None], dtype="Int64"), "integer"),
    "whole floats": (RNG.integers(0, 1000, N).astype(float), "integer"),
    "cents": (np.round(RNG.uniform(0, 1000, N), 2), "integer"),
    "single precision": (np.round(RNG.uniform(0, 100, N), 1).astype(np.float32), "integer"),
    "five decimals, repeated": (np.round(RNG.uniform(0, 0.0002, N), 5), "integer"),
    "five decimals, all different": (np.round(RNG.uniform(0, 1, N), 5), "integer"),
    "floats": (RNG.normal(size=N), "continuous"),
    "single floats": (RNG.normal(size=N).astype(np.float32), "continuous"),
    "large single floats": (RNG.uniform(1e6, 1e7, N).astype(np.float32), "continuous"),
    "one value": ([3] * N, "constant"),
    "one value, or none": ([3.5, None] * 50, "constant"),
    "one value spelt twice": (["x", " x "] * 50, "constant"),
}


@pytest.mark.parametrize("case", KINDS)
def test_a_kind_is_told_by_dtype_and_values(case):
    column, kind = KINDS[case]
    assert infer(column).kind == kind


IDENTIFIERS = {
    "text that always differs": ("a", [f"customer {i}" for i in range(N)]),
    "text that nearly always differs": ("a", ["?"] * 5 + [f"customer {i}" for i in range(95)]),
    "sorted integers": ("a", np.cumsum(RNG.integers(1, 9, N))),
    "falling integers": ("a", -np.cumsum(RNG.integers(1, 9, N))),
    "consecutive integers in any order": ("a", RNG.permutation(N)),
    "integers named id": ("customer_ID", 3 * RNG.permutation(N)),
    "integers named in camel case": ("customerId", 3 * RNG.permutation(N)),
    "integers beyond a float": ("a", RNG.permutation(N) * 7 + 2**60),
}


@pytest.mark.parametrize("case", IDENTIFIERS)
def test_an_identifier_is_kept_out_with_a_warning_that_says_how_to_have_it(case):
    name, column = IDENTIFIERS[case]
    with pytest.warns(SchemaWarning, match=rf"`{name}` is treated as an identifier.*kinds={{'{name}': '"):
        assert Schema.infer(pd.DataFrame({name: column})).features[0].kind == "identifier"


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("a", 3 * RNG.permutation(N)),
        ("paid", 3 * RNG.permutation(N)),
        ("a", np.arange(49)),
        ("a", pd.Categorical([f"customer {i}" for i in range(N)])),
        ("a", ["?"] * 7 + [f"customer {i}" for i in range(93)]),
    ],
)
def test_what_only_resembles_an_identifier_gives_no_warning(name, column):
    assert Schema.infer(pd.DataFrame({name: column})).features[0].kind in ("integer", "category")


@pytest.mark.parametrize("settings", [{"kinds": {"a": "integer"}}, {"kinds": {"a": "identifier"}}])
def test_a_named_kind_gives_no_warning(settings):
    assert infer(np.arange(N), **settings).kind == settings["kinds"]["a"]


@given(
    st.sampled_from([(100.0, 0), (1.0, 0), (0.5, 1), (0.25, 2), (0.01, 2), (0.07, 2), (0.001, 3)]),
    st.lists(st.integers(-5000, 5000), min_size=1, max_size=30),
    st.sampled_from([np.float32, np.float64]),
)
def test_the_grid_that_made_the_numbers_is_found(grid, multiples, dtype):
    step, decimals = grid
    # Parsing decimals is the truth here; adding 0, 1 and -1 makes the step the largest that fits.
    written = [float(f"{k * step:.{decimals}f}") for k in [*multiples, 0, 1, -1]]
    values = np.array(written, dtype=dtype).astype(np.float64)
    assert find_grid(values, np.dtype(dtype)) == (step, decimals)
    assert round_to_grid(np.array(written) + 0.2 * step, step, decimals).tolist() == written


def test_the_step_is_the_largest_that_fits():
    assert infer([300, 1200, 900, 1500]).step == 300
    assert infer([2.5, 10.0, 0.0, 7.5]).step == 2.5


@pytest.mark.parametrize("held_in", [np.float32, np.float64])
def test_numbers_of_no_grid_have_none(held_in):
    assert find_grid(RNG.uniform(0, 1e5, 50).astype(held_in).astype(np.float64), np.dtype(held_in)) is None
    assert find_grid(np.array([0.0]), np.dtype(held_in)) is None
    assert find_grid(np.array([1.0, 1e300]), np.dtype(np.float64)) is None


def test_a_heavy_tail_is_more_than_ten_times_the_median_of_the_positive():
    ordinary = np.array([0.0, 1.5, 3.25, 2.0, 1.75, 20.0])
    assert not infer(ordinary, kinds={"a": "continuous"}).log
    assert infer(np.append(ordinary, 20.5), kinds={"a": "continuous"}).log
    assert not infer(np.append(ordinary, [-1.0, 500.0]), kinds={"a": "continuous"}).log


def test_a_number_that_is_often_zero_has_a_state_for_it():
    positive = np.arange(1, 81)
    assert infer(shuffled(np.append(positive, np.zeros(20)))).special == (0.0,)
    assert infer(shuffled(np.append(positive, np.zeros(3)))).special == ()
    assert infer(np.append(np.arange(1, 11), np.zeros(30)), kinds={"a": "integer"}).special == ()


def test_range_and_filling_of_a_number_are_those_of_its_rows():
    column = pd.Series([3.0, 10.0, np.nan, 4.0, 7.0])
    feature = infer(column)
    assert (feature.minimum, feature.maximum, feature.can_miss) == (3.0, 10.0, True)
    assert feature.filling == column.quantile(interpolation="lower") == 4.0


def test_single_precision_is_seen_as_it_is_written():
    feature = infer(np.array([0.1, 0.3, 0.7, 1.1], dtype=np.float32))
    assert (feature.minimum, feature.maximum, feature.step, feature.filling) == (0.1, 1.1, 0.1, 0.3)
    levels = infer(np.array([0.1, 0.3] * 10, dtype=np.float32)).levels
    assert levels == (0.1, 0.3)


def test_levels_are_compared_without_spaces_and_spelt_as_most_rows_do():
    feature = infer(["Male", " Male", " Male", "Female ", "Female", "Female ", "Other"])
    assert feature.levels == ("Female ", " Male", "Other")
    assert feature.filling == "Female "


def test_levels_do_not_depend_on_the_order_of_rows():
    column = pd.Series(["b", " b", "a", "c ", "c", 3, 1.5, True] * 3, dtype=object)
    assert infer(column).levels == infer(column[::-1]).levels == (True, 1.5, 3, "a", " b", "c")


def test_levels_keep_their_types_and_order():
    assert infer(pd.Categorical(SIZES * 2, categories=["XL", *SIZES], ordered=True)).levels == tuple(SIZES)
    assert infer([3, 1, 2] * 9).levels == (1, 2, 3)
    assert infer([True, False] * 9).levels == (False, True)
    assert infer([0.2, 0.4] * 9).levels == (0.2, 0.4)
    big = infer([2**62 + 1, 2**62 + 2] * 9)
    assert (big.kind, big.levels) == ("ordered", (2**62 + 1, 2**62 + 2))


def test_an_order_makes_a_category_ordered():
    feature = infer(["M ", "S", "L", "S"], orders={"a": ["S", "M", "L", "XL"]})
    assert (feature.kind, feature.levels) == ("ordered", ("S", "M ", "L"))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([1, 2, 3] * 10, "integer"),
        ([1, 2, 3] * 10, "category"),
        ([1.0, 2.0, 3.5], "continuous"),
        ([1.0, 2.0, 3.5], "ordered"),
        (np.round(RNG.uniform(0, 1, N), 5), "integer"),
        (RNG.normal(size=N), "category"),
        (["yes", "no"] * 4, "boolean"),
        ([0, 1] * 4, "boolean"),
        ([7, 7], "integer"),
        ([7, 7], "constant"),
        (pd.date_range("2020-01-01", periods=3), "identifier"),
        ([None, None], "identifier"),
        ([[1], [2]], "identifier"),
    ],
)
def test_a_kind_can_be_named(column, kind):
    assert infer(column, kinds={"a": kind}).kind == kind


BAD = {
    "not a frame": (np.zeros((2, 2)), {}, ["expected a pandas DataFrame; got ndarray"]),
    "no rows": (pd.DataFrame({"a": []}), {}, ["no rows"]),
    "no columns": (pd.DataFrame(index=[0, 1]), {}, ["no columns"]),
    "names": (
        pd.DataFrame([[1, 2, 3]], columns=[0, "b", "b"]),
        {},
        ["must be text; got 0", "repeated: 'b'"],
    ),
    "columns": (
        pd.DataFrame(
            {
                "nothing": [np.nan, None],
                "infinite": [1.0, np.inf],
                "dates": pd.to_datetime(["2020-01-01", "2021-01-01"]),
                "durations": pd.to_timedelta([1, 2], unit="D"),
                "complex": [1j, 2.0],
                "lists": [[1], [2]],
                "bins": pd.cut(pd.Series([1, 2]), 2),
                "sparse": pd.arrays.SparseArray([0, 1]),
                "wide": [-1.7e308, 1.7e308],
                "huge": pd.Series([10**400, 1], dtype=object),
                "text": ["a", np.inf],
                "fine": [1, 2],
            }
        ),
        {},
        [
            "`nothing` has no values",
            "`infinite` has infinite",
            "`dates` has dtype datetime64",
            "Timestamp",
            "`durations` has dtype timedelta64",
            "`complex` has dtype complex128",
            "`lists` has dtype object",
            "`bins` has dtype category with values of type Interval",
            "`sparse` has dtype Sparse",
            "`wide` ranges from -1.7e+308",
            "`huge` has integers too large",
            "`text` has infinite",
        ],
    ),
    "settings": (
        pd.DataFrame(
            {
                "word": ["a", "b"],
                "number": [1.25, np.pi],
                "count": [1, 2],
                "three": [1, 2],
                "flag": [True, False],
                "sized": ["S", "L"],
            }
        ),
        {
            "kinds": {
                "word": "continuous",
                "number": "integer",
                "count": "continuous",
                "three": "constant",
                "flag": "integer",
                "sized": "category",
                "absent": "integer",
                "odd": "nominal",
            },
            "orders": {"sized": ["S", "S"], "other": ["x"]},
        },
        [
            "`word` cannot be of kind 'continuous': it has text",
            "`number` cannot be of kind 'integer': its values have no grid",
            "`count` cannot be of kind 'continuous': dtype int64",
            "`three` cannot be of kind 'constant': it has 2 distinct",
            "`flag` cannot be of kind 'integer': it has boolean",
            "`kinds` has 'category' for it",
            "`kinds` names 'absent'",
            "`kinds` has 'nominal' for 'odd'; expected one of continuous, integer",
            "`orders` for 'sized' must list its levels, each once",
            "`orders` names 'other'",
        ],
    ),
    "orders": (
        pd.DataFrame({"a": ["S", "M", "L"], "b": ["S", "M", "L"], "c": ["S", "M", "L"]}),
        {"kinds": {"a": "ordered", "c": "boolean"}, "orders": {"b": ["S", "L"]}},
        [
            "`a` cannot be of kind 'ordered': the order of its levels is unknown",
            "Set it: orders={'a': [...]}",
            "`b` has levels that are not in its order: 'M'",
            "`c` cannot be of kind 'boolean': it has 3 distinct",
        ],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_one_error_lists_every_problem(case):
    frame, settings, expected = BAD[case]
    with pytest.raises(InvalidInputError) as error:
        Schema.infer(frame, **settings)
    assert [text for text in expected if text not in str(error.value)] == []
    assert "`fine`" not in str(error.value)


def test_a_schema_knows_its_features_by_name():
    schema = Schema.infer(pd.DataFrame({"b": [1, 2], "a": ["x", "y"]}))
    assert schema.names == ("b", "a")
    assert schema.feature("a").levels == ("x", "y")
    with pytest.raises(InvalidInputError, match="one of b, a; got 'c'"):
        schema.feature("c")


def test_a_schema_goes_through_json_unchanged():
    columns = {f"{case} ({dtype})": values for case, (values, dtype) in KINDS.items() if len(values) >= N}
    frame = pd.DataFrame({name: pd.Series(values).iloc[:N].array for name, values in columns.items()})
    frame["big"] = [2**62 + 1, 2**62 + 2] * 50
    frame["numbers as categories"] = pd.Categorical([1, 2] * 50, categories=[3, 2, 1])
    frame["when"] = pd.date_range("2020-01-01", periods=N, tz="Europe/Paris")
    schema = quietly(frame, kinds={"when": "identifier"})
    restored = Schema.from_dict(json.loads(json.dumps(schema.to_dict(), allow_nan=False)))
    assert restored == schema
    for old, new in zip(schema.features, restored.features, strict=True):
        assert [type(level) for level in old.levels] == [type(level) for level in new.levels]
        assert repr(old.dtype) == repr(new.dtype)
        pd.testing.assert_series_equal(frame[new.name].astype(new.dtype), frame[new.name])


@pytest.fixture(scope="module")
def table(data_directory):
    def read(name):
        path = data_directory / f"{name}.csv"
        if not path.is_file():
            pytest.skip(f"no file {path}")
        return pd.read_csv(path)

    return read


def test_adult_has_the_kinds_that_people_expect(table):
    schema = Schema.infer(table("adult"))
    for name in ("workclass", "education", "occupation", "race", "sex", "native-country"):
        assert schema.feature(name).kind == "category"
    for name in ("age", "fnlwgt", "hours-per-week", "education-num"):
        feature = schema.feature(name)
        assert (feature.kind, feature.step, feature.log) == ("integer", 1, False)
        assert feature.special == ((40.0,) if name == "hours-per-week" else ())
    gain, loss = schema.feature("capital-gain"), schema.feature("capital-loss")
    assert (gain.kind, gain.special, gain.maximum) == ("integer", (0.0, 99999.0), 41310.0)
    assert (loss.kind, loss.special) == ("integer", (0.0,))
    assert {level.strip() for level in schema.feature("sex").levels} == {"Male", "Female"}
    assert len(schema.feature("education").levels) == 16


def test_education_is_ordered_when_its_order_is_given(table):
    order = "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc Assoc-acdm"
    order = [*order.split(), "Bachelors", "Masters", "Prof-school", "Doctorate"]
    feature = Schema.infer(table("adult"), orders={"education": order}).feature("education")
    assert feature.kind == "ordered"
    assert [level.strip() for level in feature.levels] == order


def test_german_credit_has_ordered_small_integers(table):
    schema = Schema.infer(table("german_credit"))
    kinds = {feature.name: feature.kind for feature in schema.features}
    ordered = {name for name, kind in kinds.items() if kind == "ordered"}
    assert ordered == {
        *("default", "installment_as_income_perc", "present_res_since"),
        *("credits_this_bank", "people_under_maintenance"),
    }
    assert {name for name, kind in kinds.items() if kind == "integer"} == {
        *("duration_in_month", "credit_amount", "age"),
    }
    assert sum(kind == "category" for kind in kinds.values()) == 13


def test_law_has_one_identifier_grids_and_missing_values(table):
    with pytest.warns(SchemaWarning, match="`ID`"):
        schema = Schema.infer(table("law"))
    assert [feature.name for feature in schema.features if feature.kind == "identifier"] == ["ID"]
    gpa, first_year, sex = (schema.feature(name) for name in ("gpa", "zfygpa", "sex"))
    assert (gpa.kind, gpa.step, gpa.can_miss) == ("integer", 0.1, False)
    assert (first_year.kind, first_year.step, first_year.can_miss) == ("integer", 0.01, True)
    assert (sex.kind, sex.levels, sex.can_miss) == ("ordered", (1.0, 2.0), True)
    assert schema.feature("index6040").kind == "continuous"


def test_heloc_is_all_whole_numbers(table):
    schema = Schema.infer(table("heloc").drop(columns="RiskPerformance"))
    assert {feature.kind for feature in schema.features} == {"integer", "ordered"}
    assert {feature.step for feature in schema.features if feature.kind == "integer"} == {1.0}
