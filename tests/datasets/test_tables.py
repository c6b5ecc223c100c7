"""The mixed tables: their rows against the raw files as pandas reads them, their splits, rules and errors."""

import numpy as np
import pandas as pd
import pytest

from plausiflow.datasets import load_dataset
from plausiflow.datasets.catalog import describe_datasets
from plausiflow.datasets.loans import draw
from plausiflow.datasets.tables import describe_tables, load_table, loans_table, table_names
from plausiflow.errors import DataNotFoundError, InvalidInputError

# Rows, features, labels and how often each occurs, and the sizes of the study.
EXPECTED = {
    "german_credit": (1000, 20, {0: 700, 1: 300}, (700, 300)),
    "adult": (32561, 12, {"<=50K": 24720, ">50K": 7841}, (8000, 500)),
    "law": (2216, 5, {0: 1108, 1: 1108}, (1772, 444)),
    "heloc": (10459, 23, {"Bad": 5459, "Good": 5000}, (9959, 500)),
    "loans": (5000, 12, {"granted": 2511, "rejected": 2489}, (4000, 500)),
    "contacts": (5000, 17, {"no": 3560, "yes": 1440}, (4000, 500)),
    "orders": (5000, 19, {"in time": 2608, "late": 2392}, (4000, 500)),
}
FILES = [name for name in EXPECTED if name not in ("loans", "contacts", "orders")]
LAW = ["lsat", "gpa", "zfygpa", "gender", "race1", "pass_bar"]


@pytest.fixture(scope="module")
def tables(data_directory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAUSIFLOW_DATA", str(data_directory))
        return {name: load_table(name) for name in EXPECTED}


@pytest.fixture(scope="module")
def raw(data_directory):
    return {name: pd.read_csv(data_directory / f"{name}.csv") for name in FILES}


@pytest.fixture
def no_files(tmp_path, monkeypatch):
    """A machine without any data file; returns its empty data folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("PLAUSIFLOW_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def text(frame):
    return frame.select_dtypes(exclude=["number", "bool", "category"])


def test_the_names_are_those_of_the_study():
    assert table_names() == tuple(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_size_and_labels_are_those_of_the_study(name, tables):
    rows, features, labels, study = EXPECTED[name]
    table = tables[name]
    assert table.x.shape == (rows, features)
    assert table.y.value_counts().to_dict() == labels
    assert table.study == study


@pytest.mark.parametrize("name", EXPECTED)
def test_labels_lie_beside_the_features_and_not_among_them(name, tables):
    table = tables[name]
    assert table.y.name == table.target
    assert table.target not in table.x
    assert table.x.index.equals(pd.RangeIndex(len(table.x)))
    assert table.y.index.equals(table.x.index)


@pytest.mark.parametrize("name", EXPECTED)
def test_rules_name_columns_and_orders_hold_every_level(name, tables):
    table = tables[name]
    named = {*table.immutable, *table.increasing, *table.protected, *table.orders}
    assert named <= set(table.x.columns)
    assert set(table.protected) <= set(table.immutable)
    assert not set(table.increasing) & set(table.immutable)
    for column, order in table.orders.items():
        assert set(table.x[column]) == set(order)
        assert len(set(order)) == len(order)


@pytest.mark.parametrize("name", EXPECTED)
def test_no_cell_is_missing_and_no_text_has_spaces_around_it(name, tables):
    table = tables[name]
    assert not table.x.isna().any().any()
    for _, column in text(table.x.assign(label=table.y)).items():
        assert (column.str.strip() == column).all()


@pytest.mark.parametrize("name", ["german_credit", "adult", "heloc"])
def test_all_rows_of_the_file_are_there_with_its_numbers_and_dtypes(name, tables, raw):
    table, frame = tables[name], raw[name]
    kept = frame.drop(columns=[table.target, "fnlwgt", "education-num"], errors="ignore")
    assert list(table.x.columns) == list(kept.columns)
    assert (table.x.dtypes == kept.dtypes).all()
    numbers = kept.select_dtypes("number")
    pd.testing.assert_frame_equal(table.x[numbers.columns], numbers)
    for column in text(kept):
        assert table.x[column].tolist() == [value.strip() for value in kept[column]]


def test_law_is_every_failure_and_as_many_passes(tables, raw):
    complete = raw["law"][LAW].dropna()
    failed, passed = complete[complete["pass_bar"] == 0], complete[complete["pass_bar"] == 1]
    expected = pd.concat([failed, passed.sample(len(failed), random_state=42)], ignore_index=True)
    table = tables["law"]
    pd.testing.assert_frame_equal(table.x, expected[LAW[:-1]])
    assert table.y.tolist() == expected["pass_bar"].tolist()


def test_education_is_ordered_as_the_census_numbers_it(tables, raw):
    numbers = raw["adult"].groupby(raw["adult"]["education"].str.strip())["education-num"].unique()
    assert numbers.map(len).eq(1).all()
    assert tables["adult"].orders["education"] == tuple(numbers.map(lambda n: n[0]).sort_values().index)


def test_a_question_mark_is_a_level_of_adult(tables):
    assert (tables["adult"].x == "?").sum().sum() == 4262


def test_numbers_of_heloc_are_those_of_the_catalogue(tables, data_directory, monkeypatch):
    monkeypatch.setenv("PLAUSIFLOW_DATA", str(data_directory))
    pd.testing.assert_frame_equal(tables["heloc"].x.astype(float), load_dataset("heloc").x)


def test_loans_are_the_drawn_ones(tables):
    x, y = draw(5000, 0)
    pd.testing.assert_frame_equal(tables["loans"].x, x)
    pd.testing.assert_series_equal(tables["loans"].y, y)
    assert (tables["loans"].immutable, tables["loans"].increasing) == (("age", "sex"), ("education",))


@pytest.mark.parametrize("name", EXPECTED)
def test_the_study_trains_and_tests_on_different_rows(name, tables):
    table = tables[name]
    train, test = table.study_split()
    assert (len(train.x), len(test.x)) == EXPECTED[name][3]
    assert not set(train.x.index) & set(test.x.index)
    for part in (train, test):
        pd.testing.assert_frame_equal(part.x, table.x.loc[part.x.index])
        pd.testing.assert_series_equal(part.y, table.y.loc[part.x.index])
        assert (part.name, part.orders, part.immutable) == (name, table.orders, table.immutable)


def test_a_split_is_the_start_of_numpys_permutation():
    train, test = loans_table(n=50).split(30, 15, seed=7)
    order = np.random.default_rng(7).permutation(50)
    assert [*train.x.index, *test.x.index] == order[:45].tolist()


def test_the_same_seed_splits_the_same_way_and_another_differently():
    table = loans_table(n=50)
    first, again, other = (table.split(30, 20, seed=seed)[0] for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first.x, again.x)
    assert not first.x.index.equals(other.x.index)
    pd.testing.assert_frame_equal(first.x, table.split(30, 20)[0].x)


@pytest.mark.parametrize("sizes", [(0, 10), (10, 0), (40, 11)])
def test_sizes_beyond_the_rows_are_refused(sizes):
    with pytest.raises(InvalidInputError, match=f"at most the 50 rows of loans; got {sizes[0]} and"):
        loans_table(n=50).split(*sizes)


def test_a_part_of_a_table_has_no_study_split():
    train, _ = loans_table().study_split()
    with pytest.raises(InvalidInputError, match=r"got a part, or another table: Table\(loans: 4000 rows"):
        train.study_split()


def test_too_few_loans_for_the_study_are_refused():
    with pytest.raises(InvalidInputError, match="at most the 200 rows of loans; got 4000 and 500"):
        loans_table(n=200).study_split()


def test_an_unknown_name_suggests_close_ones():
    with pytest.raises(InvalidInputError, match=r"got 'german'. Did you mean 'german_credit'\?"):
        load_table("german")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_names_every_place_and_what_to_do(name, no_files, tmp_path):
    with pytest.raises(DataNotFoundError) as caught:
        load_table(name)
    message = str(caught.value)
    for part in (
        str(no_files / f"{name}.csv"),
        str(tmp_path / "cache" / "plausiflow" / f"{name}.csv"),
        "set PLAUSIFLOW_DATA",
    ):
        assert part in message


def test_every_problem_of_a_file_is_listed(no_files):
    frame = pd.DataFrame({"age": [20, 30], "education": ["HS-grad", "evening"], "class": ["<=50K", "rich"]})
    frame.to_csv(no_files / "adult.csv", index=False)
    with pytest.raises(InvalidInputError) as caught:
        load_table("adult")
    for part in (
        "no column sex; no column race; no column native-country",
        "class is 'rich' in 1 rows, not one of '<=50K', '>50K'",
        "education is 'evening' in 1 rows",
        "Replace it with the original (UCI",
    ):
        assert part in str(caught.value)


def test_the_users_cache_is_read_where_the_configured_folder_has_no_such_file(
    data_directory, no_files, tmp_path
):
    cache = tmp_path / "cache" / "plausiflow"
    cache.mkdir(parents=True)
    (cache / "german_credit.csv").symlink_to(data_directory / "german_credit.csv")
    assert load_table("german_credit").source == str(cache / "german_credit.csv")


@pytest.mark.parametrize("name", FILES)
def test_provenance_states_the_file_of_the_study(name, tables):
    assert "(the file of the study)" in tables[name].provenance


def test_provenance_of_another_file_states_both_checksums(raw, no_files):
    raw["german_credit"][:900].to_csv(no_files / "german_credit.csv", index=False)
    table = load_table("german_credit")
    assert len(table.x) == 900
    assert "the file of the study has 2cc8b251" in table.provenance


def test_provenance_of_loans_tells_rows_and_seed():
    assert "50 rows: the numbers and classes of the numeric loans of seed 7" in loans_table(50, 7).provenance


def test_the_description_agrees_with_what_is_loaded(tables, data_directory, monkeypatch):
    monkeypatch.setenv("PLAUSIFLOW_DATA", str(data_directory))
    lines = describe_tables()
    assert list(lines.columns) == list(describe_datasets().columns)
    assert lines["available"].all()
    for line in lines.itertuples():
        table = tables[line.name]
        assert (line.rows, line.features, line.classes) == (*table.x.shape, table.y.nunique())
        assert line.where == table.source


def test_the_description_says_what_is_not_here(no_files):
    lines = describe_tables().set_index("name")
    assert set(lines.index[~lines["available"]]) == set(FILES)
    assert (lines.loc[FILES, "where"] == "not found").all()
    assert lines.loc["loans", "where"] == "generated"


def test_texts_are_short():
    assert repr(loans_table(n=50)) == "Table(loans: 50 rows, 12 features)"
