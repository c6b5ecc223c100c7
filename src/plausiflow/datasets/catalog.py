"""The data sets of the paper, breast_cancer and loans, with the paper's rows, order and folds.

Wine, digits and breast_cancer come with scikit-learn; loans are generated. The others are CSV files in
``$PLAUSIFLOW_DATA`` or the user's cache; nothing is downloaded. If the file of moons or blobs is not found,
similar rows are generated, and the provenance says so. The order of the rows determines the folds, so each
data set is prepared exactly as in the published runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn import datasets as bundled

from plausiflow.datasets import synthetic
from plausiflow.datasets.files import (
    ORIGINS,
    UCI,
    balance_classes,
    check_known,
    checksum,
    find_file,
    not_found,
)
from plausiflow.datasets.folds import Dataset
from plausiflow.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class _CsvFile:
    """A CSV file: its required columns, the target's values in the order of the classes, the rows to use."""

    columns: tuple[str, ...]
    target: str
    classes: tuple[object, ...]
    rows: str
    choose: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame


@dataclass(frozen=True, kw_only=True)
class _DatasetEntry:
    """A data set of the catalogue; without a file, ``make`` returns features and classes."""

    rows: int
    features: int
    class_names: tuple[str, ...]
    target: str
    origin: str
    file: _CsvFile | None = None
    make: Callable[[], tuple[pd.DataFrame, npt.ArrayLike]] | None = None
    made_by: str = "scikit-learn"
    recipe: str = "All rows, as bundled with scikit-learn."


def dataset_names() -> tuple[str, ...]:
    """Return the names of all data sets.

    Example:
        >>> dataset_names()
        ('moons', 'law', 'audit', 'heloc', 'blobs', 'digits', 'wine', 'breast_cancer', 'loans')
    """
    return tuple(_CATALOG)


def check_dataset_name(name: str) -> None:
    """Raise if no data set has this name."""
    check_known(name, dataset_names())


def load_dataset(name: str) -> Dataset:
    """Load a data set, with its rows selected and ordered as in the published runs.

    Raises:
        InvalidInputError: The name is unknown, or the file is not the expected one.
        DataNotFoundError: The file was not found.

    Example:
        >>> load_dataset("wine")
        Dataset(wine: 178 rows, 13 features, 3 classes)
    """
    check_dataset_name(name)
    entry = _CATALOG[name]
    path = None if entry.file is None else find_file(name)
    if path is not None and entry.file is not None:
        x, y = _read(path, entry.file, entry.origin)
        provenance = f"{entry.file.rows} {checksum(path, name)}"
    elif entry.make is not None:
        x, y = entry.make()
        provenance = entry.recipe
    else:
        raise not_found(name)
    return Dataset(
        name=name,
        x=x.astype(np.float64).reset_index(drop=True),
        y=np.asarray(y, dtype=np.int64),
        class_names=entry.class_names,
        target=entry.target,
        provenance=f"{entry.origin}. {provenance}",
        source=entry.made_by if path is None else str(path),
    )


def describe_datasets() -> pd.DataFrame:
    """Return one row per data set: its size, its origin, and whether and from where it can be loaded."""
    lines = []
    for name, entry in _CATALOG.items():
        path = None if entry.file is None else find_file(name)
        where = str(path or (entry.made_by if entry.make is not None else "not found"))
        size = (entry.rows, entry.features, len(entry.class_names))
        lines.append((name, *size, entry.origin, path is not None or entry.make is not None, where))
    columns = ["name", "rows", "features", "classes", "source", "available", "where"]
    return pd.DataFrame(lines, columns=columns)


def _read(path: Path, file: _CsvFile, origin: str) -> tuple[pd.DataFrame, npt.ArrayLike]:
    frame = pd.read_csv(path)
    missing = [column for column in (*file.columns, file.target) if column not in frame.columns]
    if missing:
        raise InvalidInputError(
            f"{path} must have the columns {', '.join(file.columns)} and {file.target}; missing: "
            f"{', '.join(missing)}. Replace it with the original ({origin})."
        )
    chosen = file.choose(frame)
    x = chosen[list(file.columns)]
    y = chosen[file.target].map({value: k for k, value in enumerate(file.classes)})
    gaps = x.apply(pd.to_numeric, errors="coerce").isna().sum()
    problems = [f"{name} is missing or not a number in {count} rows" for name, count in gaps.items() if count]
    if y.isna().any():
        classes = ", ".join(map(str, file.classes))
        problems.append(f"{file.target} is not one of {classes} in {y.isna().sum()} rows")
    if problems:
        raise InvalidInputError(f"{path}: {'; '.join(problems)}. Replace it with the original ({origin}).")
    return x.rename(columns=_PLANE), y


def _plane(points: npt.NDArray[np.float64], y: npt.NDArray[np.int64]) -> tuple[pd.DataFrame, npt.ArrayLike]:
    return pd.DataFrame(points, columns=list(_PLANE.values())), y


_PLANE = {"0": "x1", "1": "x2"}
_LAW = ("lsat", "gpa", "zfygpa")
# fmt: off
_AUDIT = (
    "PARA_A", "Score_A", "Risk_A", "PARA_B", "Score_B_1", "Risk_B", "TOTAL", "numbers", "Score_B_2", "Risk_C",
    "Money_Value", "Score_MV", "Risk_D", "District_Loss", "PROB", "RiSk_E", "History", "Prob", "Risk_F",
    "Score", "Inherent_Risk", "CONTROL_RISK", "Audit_Risk",
)
_HELOC = (
    "ExternalRiskEstimate", "MSinceOldestTradeOpen", "MSinceMostRecentTradeOpen", "AverageMInFile",
    "NumSatisfactoryTrades", "NumTrades60Ever2DerogPubRec", "NumTrades90Ever2DerogPubRec",
    "PercentTradesNeverDelq", "MSinceMostRecentDelq", "MaxDelq2PublicRecLast12M", "MaxDelqEver",
    "NumTotalTrades", "NumTradesOpeninLast12M", "PercentInstallTrades", "MSinceMostRecentInqexcl7days",
    "NumInqLast6M", "NumInqLast6Mexcl7days", "NetFractionRevolvingBurden", "NetFractionInstallBurden",
    "NumRevolvingTradesWBalance", "NumInstallTradesWBalance", "NumBank2NatlTradesWHighUtilization",
    "PercentTradesWBalance",
)

_CATALOG = {
    "moons": _DatasetEntry(
        rows=1024, features=2, class_names=("upper", "lower"), target="moon",
        origin=ORIGINS["moons"],
        file=_CsvFile(
            columns=tuple(_PLANE), target="2", classes=(0, 1),
            rows="The published rows, in the order of the file.",
        ),
        make=lambda: _plane(*bundled.make_moons(1024, noise=0.1, random_state=0)), made_by="generated",
        recipe="Not the published rows, because moons.csv was not found, but similar ones: "
        "make_moons(1024, noise=0.1, random_state=0).",
    ),
    "law": _DatasetEntry(
        rows=2220, features=3, class_names=("failed", "passed"), target="pass_bar",
        origin=ORIGINS["law"],
        file=_CsvFile(
            columns=_LAW, target="pass_bar", classes=(0, 1),
            rows="Rows without a missing feature: all who failed, then as many of those who passed "
            "(seed 42).",
            choose=lambda frame: balance_classes(frame.dropna(subset=list(_LAW)), "pass_bar"),
        ),
    ),
    "audit": _DatasetEntry(
        rows=610, features=23, class_names=("no risk", "risk"), target="Risk",
        origin=ORIGINS["audit"],
        file=_CsvFile(
            columns=_AUDIT, target="Risk", classes=(0, 1),
            rows="As many firms without risk (seed 42) as with risk, then those. "
            "Risk is a function of the feature Audit_Risk.",
            choose=lambda frame: balance_classes(frame, "Risk"),
        ),
    ),
    "heloc": _DatasetEntry(
        rows=10459, features=23, class_names=("Bad", "Good"), target="RiskPerformance",
        origin=ORIGINS["heloc"],
        file=_CsvFile(
            columns=_HELOC, target="RiskPerformance", classes=("Bad", "Good"),
            rows="All rows, in the order of the file, not balanced; "
            "the special codes -7, -8 and -9 are kept as numbers.",
        ),
    ),
    "blobs": _DatasetEntry(
        rows=1499, features=2, class_names=("0", "1", "2"), target="blob",
        origin=ORIGINS["blobs"],
        file=_CsvFile(
            columns=tuple(_PLANE), target="2", classes=(0, 1, 2),
            rows="The published rows but the first, which the published runs dropped, in file order.",
            choose=lambda frame: frame.iloc[1:],
        ),
        make=lambda: _plane(*bundled.make_blobs(1499, centers=3, cluster_std=1.5, random_state=0)),
        made_by="generated",
        recipe="Not the published rows, because blobs.csv was not found, but similar ones: "
        "make_blobs(1499, centers=3, cluster_std=1.5, random_state=0).",
    ),
    "digits": _DatasetEntry(
        rows=1797, features=64, class_names=tuple(str(digit) for digit in range(10)), target="digit",
        origin=f"{UCI} 80, handwritten digits of 8 x 8 pixels (its test part), CC BY 4.0",
        make=lambda: bundled.load_digits(return_X_y=True, as_frame=True),
    ),
    "wine": _DatasetEntry(
        rows=178, features=13, class_names=("class_0", "class_1", "class_2"), target="cultivar",
        origin=f"{UCI} 109, Wine, CC BY 4.0", make=lambda: bundled.load_wine(return_X_y=True, as_frame=True),
    ),
    "breast_cancer": _DatasetEntry(
        rows=569, features=30, class_names=("malignant", "benign"), target="diagnosis",
        origin=f"{UCI} 17, Breast Cancer Wisconsin (Diagnostic), CC BY 4.0",
        make=lambda: bundled.load_breast_cancer(return_X_y=True, as_frame=True),
    ),
    "loans": _DatasetEntry(
        rows=synthetic.ROWS, features=len(synthetic.FEATURES), class_names=synthetic.CLASSES,
        target=synthetic.TARGET, origin=synthetic.ORIGIN, made_by="generated",
        make=lambda: synthetic.draw(synthetic.ROWS, synthetic.SEED),
        recipe=synthetic.recipe(synthetic.ROWS, synthetic.SEED),
    ),
}
# fmt: on
