"""The catalogue's rows, folds and errors; truth is from the paper, scikit-learn and the published arrays."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import MinMaxScaler

from plausiflow.datasets import Dataset, dataset_names, describe_datasets, load_dataset
from plausiflow.errors import DataNotFoundError, InvalidInputError

SIZES = {
    "moons": (1024, 2, 2),
    "law": (2220, 3, 2),
    "audit": (610, 23, 2),
    "heloc": (10459, 23, 2),
    "blobs": (1499, 2, 3),
    "digits": (1797, 64, 10),
    "wine": (178, 13, 3),
    "breast_cancer": (569, 30, 2),
    "loans": (5000, 6, 2),
}
PAPER = [name for name in SIZES if name not in ("breast_cancer", "loans")]
FILES = ["moons", "law", "audit", "heloc", "blobs"]
BUNDLED = [name for name in SIZES if name not in FILES]


@pytest.fixture
def with_files(request, monkeypatch):
    """A machine with the data files; a test of one bundled data set does without."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is None or callspec.params["name"] in FILES:
        monkeypatch.setenv("PLAUSIFLOW_DATA", str(request.getfixturevalue("data_directory")))


@pytest.fixture
def no_files(tmp_path, monkeypatch):
    """A machine without any data file; returns its empty data folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("PLAUSIFLOW_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_the_catalogue_has_the_papers_seven_data_sets_breast_cancer_and_loans():
    assert set(dataset_names()) == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_size_is_that_of_the_paper(name, with_files):
    dataset = load_dataset(name)
    assert (*dataset.x.shape, len(dataset.class_names)) == SIZES[name]
    assert len(dataset.feature_names) == SIZES[name][1]
    assert np.array_equal(np.unique(dataset.y), np.arange(SIZES[name][2]))


@pytest.mark.parametrize("name", SIZES)
def test_features_are_finite_floats_and_classes_are_integers(name, with_files):
    dataset = load_dataset(name)
    assert (dataset.x.dtypes == np.float64).all()
    assert np.isfinite(dataset.x.to_numpy()).all()
    assert dataset.y.dtype == np.int64
    assert list(dataset.x.index) == list(range(len(dataset.y)))


@pytest.mark.parametrize(
    ("name", "counts"), [("law", [1110, 1110]), ("audit", [305, 305]), ("heloc", [5459, 5000])]
)
def test_class_counts_are_those_of_the_published_runs(name, counts, with_files):
    assert np.bincount(load_dataset(name).y).tolist() == counts


@pytest.mark.paper
@pytest.mark.parametrize("name", PAPER)
def test_the_first_fold_equals_the_published_one(name, with_files, reference_directory):
    fold = load_dataset(name).fold(0)
    with np.load(reference_directory / f"{name}.npz") as published:
        for part in ("train", "test"):
            x, y = torch.from_numpy(published[f"X_{part}"]), torch.from_numpy(published[f"y_{part}"])
            torch.testing.assert_close(getattr(fold, f"x_{part}"), x, rtol=0, atol=1e-6)
            assert torch.equal(getattr(fold, f"y_{part}"), y)


@pytest.mark.parametrize("name", ["wine", "breast_cancer"])
def test_test_rows_of_the_folds_partition_the_rows(name):
    dataset = load_dataset(name)
    folds = [dataset.fold(k) for k in range(5)]
    tested = torch.cat([fold.rows_test for fold in folds])
    assert torch.equal(tested.sort().values, torch.arange(len(dataset.y)))
    for fold in folds:
        assert torch.equal(
            torch.cat([fold.rows_train, fold.rows_test]).sort().values, torch.arange(len(dataset.y))
        )


@pytest.mark.parametrize("name", BUNDLED)
def test_scaling_equals_scikit_learns(name):
    dataset = load_dataset(name)
    fold = dataset.fold(1)
    scaler = MinMaxScaler().fit(dataset.x.to_numpy()[fold.rows_train])
    for rows, x in ((fold.rows_train, fold.x_train), (fold.rows_test, fold.x_test)):
        expected = scaler.transform(dataset.x.to_numpy()[rows]).astype(np.float32)
        np.testing.assert_allclose(x.numpy(), expected, rtol=0, atol=1e-6)


def test_fold_tensors_are_float_and_long():
    fold = load_dataset("wine").fold(0)
    assert fold.x_train.dtype == fold.x_test.dtype == torch.float32
    assert fold.y_train.dtype == fold.y_test.dtype == torch.long
    assert fold.minimum.dtype == fold.range.dtype == torch.float64


def test_a_constant_column_scales_to_zero():
    x = pd.DataFrame({"varies": np.arange(20.0), "constant": np.full(20, 7.0)})
    dataset = Dataset(
        name="toy",
        x=x,
        y=np.arange(20) % 2,
        class_names=("a", "b"),
        target="parity",
        provenance="made here",
        source="test",
    )
    fold = dataset.fold(0)
    assert torch.equal(fold.x_train[:, 1], torch.zeros(16, dtype=torch.float32))
    assert torch.equal(fold.to_original(fold.x_test)[:, 1], torch.full((4,), 7.0, dtype=torch.float32))


@pytest.mark.parametrize("dtype_", [torch.float32, torch.float64])
def test_to_original_undoes_the_scaling_in_the_dtype_of_its_input(dtype_):
    dataset = load_dataset("breast_cancer")
    fold = dataset.fold(2)
    original = fold.to_original(fold.x_test.to(dtype_))
    assert original.dtype == dtype_
    expected = torch.from_numpy(dataset.x.to_numpy()[fold.rows_test])
    assert (((original.double() - expected) / fold.range).abs() < 1e-6).all()


@pytest.mark.parametrize("k", [-1, 5])
def test_a_fold_that_does_not_exist_is_refused(k):
    with pytest.raises(InvalidInputError, match=f"fold, from 0 to 4; got {k}"):
        load_dataset("wine").fold(k)


def test_an_unknown_name_suggests_close_ones():
    with pytest.raises(InvalidInputError, match=r"got 'breastcancer'. Did you mean 'breast_cancer'\?"):
        load_dataset("breastcancer")


@pytest.mark.parametrize("name", ["law", "audit", "heloc"])
def test_a_missing_file_names_every_place_and_what_to_do(name, no_files, tmp_path):
    with pytest.raises(DataNotFoundError) as caught:
        load_dataset(name)
    message = str(caught.value)
    for part in (
        str(no_files / f"{name}.csv"),
        str(tmp_path / "cache" / "plausiflow" / f"{name}.csv"),
        "set PLAUSIFLOW_DATA",
    ):
        assert part in message


def test_a_missing_file_says_that_no_folder_was_configured(no_files, monkeypatch):
    monkeypatch.delenv("PLAUSIFLOW_DATA")
    with pytest.raises(DataNotFoundError, match=r"\$PLAUSIFLOW_DATA: not set"):
        load_dataset("law")


def test_the_users_cache_is_read_where_the_configured_folder_has_no_such_file(
    data_directory, no_files, tmp_path
):
    cache = tmp_path / "cache" / "plausiflow"
    cache.mkdir(parents=True)
    (cache / "audit.csv").symlink_to(data_directory / "audit.csv")
    assert load_dataset("audit").source == str(cache / "audit.csv")


@pytest.mark.parametrize("name", ["moons", "blobs"])
def test_generated_rows_stand_in_for_an_absent_file_and_say_so(name, no_files):
    dataset = load_dataset(name)
    assert (*dataset.x.shape, len(dataset.class_names)) == SIZES[name]
    assert dataset.source == "generated"
    assert f"Not the published rows, because {name}.csv was not found" in dataset.provenance
    pd.testing.assert_frame_equal(dataset.x, load_dataset(name).x)


@pytest.mark.parametrize("name", FILES)
def test_provenance_states_the_published_file(name, with_files):
    assert "(the published file)" in load_dataset(name).provenance


def test_provenance_of_another_file_states_both_checksums(data_directory, no_files):
    changed = pd.read_csv(data_directory / "moons.csv") * 1.0
    changed.iloc[0, 0] += 1
    changed.to_csv(no_files / "moons.csv", index=False)
    assert "the published file has 12981e68" in load_dataset("moons").provenance


def test_every_missing_column_is_listed(no_files):
    pd.DataFrame({"gpa": [3.0], "zfygpa": [0.1]}).to_csv(no_files / "law.csv", index=False)
    with pytest.raises(InvalidInputError, match="missing: lsat, pass_bar"):
        load_dataset("law")


def test_every_bad_value_is_listed(no_files):
    frame = pd.DataFrame({"0": [1.0, None, 2.0], "1": ["a", "1", "2"], "2": [0, 1, 9]})
    frame.to_csv(no_files / "moons.csv", index=False)
    with pytest.raises(
        InvalidInputError,
        match=r"0 is missing.* 1 rows; 1 is missing.* 1 rows; 2 is not one of 0, 1 in 1 rows",
    ):
        load_dataset("moons")


def test_the_description_agrees_with_what_is_loaded(with_files):
    table = describe_datasets().set_index("name")
    assert table["available"].all()
    for name in dataset_names():
        dataset = load_dataset(name)
        line = table.loc[name]
        assert (line["rows"], line["features"], line["classes"]) == (
            *dataset.x.shape,
            len(dataset.class_names),
        )
        assert line["where"] == dataset.source


def test_the_description_says_what_is_not_here(no_files):
    table = describe_datasets().set_index("name")
    assert set(table.index[~table["available"]]) == {"law", "audit", "heloc"}
    assert (table.loc[~table["available"], "where"] == "not found").all()
    assert (table.loc[["moons", "blobs", "loans"], "where"] == "generated").all()


def test_texts_are_short():
    assert repr(load_dataset("wine")) == "Dataset(wine: 178 rows, 13 features, 3 classes)"
    assert (
        repr(load_dataset("wine").fold(0)) == "Fold(142 training rows, 36 test rows, 13 features, 3 classes)"
    )
