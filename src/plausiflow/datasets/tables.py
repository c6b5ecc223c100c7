"""Named tables of numbers and categories, with the columns that rules apply to.

``german_credit``, ``adult``, ``law`` and ``heloc`` are CSV files, found like those of the catalogue. Three
tables are generated: the density of ``loans`` is known, and what always holds in ``contacts`` and ``orders``
is listed in ``truths``. Spaces around text are removed (some cells of adult.csv begin with one); nothing is
encoded or scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from plausiflow.datasets import contacts, loans, orders
from plausiflow.datasets.files import ORIGINS, balance_classes, check_known, checksum, find_file, not_found
from plausiflow.datasets.planted import Truth
from plausiflow.datasets.synthetic import CLASSES, ROWS, SEED, TARGET
from plausiflow.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """A named table of mixed columns with a label for every row.

    Attributes:
        name: Name of the table.
        x: Features, in their usual dtypes.
        y: Labels, with the index of ``x``.
        target: Name of the label.
        immutable: Columns that nobody can change.
        increasing: Columns that may only rise, such as an education.
        protected: Columns whose values define the groups that reports compare.
        orders: Levels of ordered text columns, lowest first.
        provenance: The origin of the rows and how they were prepared.
        source: The file that was read, or ``generated``.
        study: Numbers of training and test rows in the study of mixed tables; None for a part of a table.
        truths: What always holds in a generated table, to score what is learned from it.
    """

    name: str
    x: pd.DataFrame
    y: pd.Series
    target: str
    immutable: tuple[str, ...] = ()
    increasing: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provenance: str
    source: str
    study: tuple[int, int] | None = None
    truths: tuple[Truth, ...] = ()

    def split(self, n_train: int, n_test: int, seed: int = 0) -> tuple[Table, Table]:
        """Return training and test rows, disjoint and in random order; other rows are left out.

        NumPy's ``default_rng(seed).permutation`` orders all rows; the first ``n_train`` are the training rows
        and the next ``n_test`` the test rows. They keep their index.

        Example:
            >>> train, test = loans_table(n=200).split(150, 50)
            >>> train, test
            (Table(loans: 150 rows, 12 features), Table(loans: 50 rows, 12 features))
        """
        if min(n_train, n_test) < 1 or n_train + n_test > len(self.x):
            raise InvalidInputError(
                f"`n_train` and `n_test` must be at least 1 and together at most the {len(self.x)} rows of "
                f"{self.name}; got {n_train} and {n_test}."
            )
        order = np.random.default_rng(seed).permutation(len(self.x))
        return self._rows(order[:n_train]), self._rows(order[n_train : n_train + n_test])

    def study_split(self) -> tuple[Table, Table]:
        """Return the split of the study of mixed tables, with seed 0."""
        if self.study is None:
            raise InvalidInputError(
                f"`study_split` needs a whole table from `load_table`, one of {', '.join(table_names())}; "
                f"got a part, or another table: {self!r}."
            )
        return self.split(*self.study)

    def _rows(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Table:
        return replace(self, x=self.x.iloc[rows], y=self.y.iloc[rows], study=None)

    def __repr__(self) -> str:
        rows, features = self.x.shape
        return f"Table({self.name}: {rows} rows, {features} features)"


@dataclass(frozen=True, kw_only=True)
class _TableFile:
    """A CSV file: its labels, the rows and columns to use, its rules, the sizes of the study."""

    rows: int
    features: int
    target: str
    labels: tuple[object, ...]
    recipe: str
    study: Callable[[int], tuple[int, int]]
    columns: tuple[str, ...] = ()
    choose: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame
    immutable: tuple[str, ...] = ()
    increasing: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def table_names() -> tuple[str, ...]:
    """Return the names of all tables.

    Example:
        >>> table_names()
        ('german_credit', 'adult', 'law', 'heloc', 'loans', 'contacts', 'orders')
    """
    return (*_FILES, *_GENERATED)


def load_table(name: str) -> Table:
    """Load a table, with its columns and rows selected as in the study of mixed tables.

    Raises:
        InvalidInputError: The name is unknown, or the file is not the expected one.
        DataNotFoundError: The file was not found.

    Example:
        >>> load_table("loans")
        Table(loans: 5000 rows, 12 features)
    """
    if name in _GENERATED:
        return _GENERATED[name]()
    check_known(name, table_names())
    file, path = _FILES[name], find_file(name)
    if path is None:
        raise not_found(name)
    frame = _read(path, name, file)
    return Table(
        name=name,
        x=frame.drop(columns=file.target),
        y=frame[file.target],
        target=file.target,
        immutable=file.immutable,
        increasing=file.increasing,
        protected=file.protected,
        orders=file.orders,
        provenance=f"{ORIGINS[name]}. {file.recipe} {checksum(path, name, 'the file of the study')}",
        source=str(path),
        study=file.study(len(frame)),
    )


def loans_table(n: int = ROWS, seed: int = SEED) -> Table:
    """Return generated loan applications of numbers and categories (:mod:`plausiflow.datasets.loans`)."""
    x, y = loans.draw(n, seed)
    return Table(
        name="loans",
        x=x,
        y=y,
        target=TARGET,
        immutable=("age", "sex"),
        increasing=("education",),
        protected=("sex",),
        orders={"education": tuple(map(str, loans.LEVELS["education"]))},
        provenance=f"{loans.ORIGIN}. {loans.recipe(n, seed)}",
        source="generated",
        study=(4000, 500),
    )


def contacts_table(n: int = contacts.ROWS, seed: int = contacts.SEED) -> Table:
    """Return generated contacts of a bank's campaign (:mod:`plausiflow.datasets.contacts`)."""
    x, y = contacts.draw(n, seed)
    return Table(
        name="contacts",
        x=x,
        y=y,
        target=contacts.TARGET,
        immutable=("age",),
        increasing=("education",),
        orders={"education": contacts.EDUCATION},
        provenance=f"{contacts.ORIGIN}. {contacts.recipe(n, seed)}",
        source="generated",
        study=(4000, 500),
        truths=contacts.TRUTHS,
    )


def orders_table(n: int = orders.ROWS, seed: int = orders.SEED) -> Table:
    """Return generated invoices (:mod:`plausiflow.datasets.orders`)."""
    x, y = orders.draw(n, seed)
    return Table(
        name="orders",
        x=x,
        y=y,
        target=orders.TARGET,
        immutable=("customer_years", "country"),
        provenance=f"{orders.ORIGIN}. {orders.recipe(n, seed)}",
        source="generated",
        study=(4000, 500),
        truths=orders.TRUTHS,
    )


_GENERATED: dict[str, Callable[[], Table]] = {
    "loans": loans_table,
    "contacts": contacts_table,
    "orders": orders_table,
}


def describe_tables() -> pd.DataFrame:
    """Return one row per table, with the columns of ``describe_datasets``."""
    lines: list[tuple[object, ...]] = []
    for name, file in _FILES.items():
        path = find_file(name)
        where = "not found" if path is None else str(path)
        size = (file.rows, file.features, len(file.labels))
        lines.append((name, *size, ORIGINS[name], path is not None, where))
    sizes = {
        loans: ("loans", ROWS, len(loans.COLUMNS), len(CLASSES)),
        contacts: ("contacts", contacts.ROWS, len(contacts.COLUMNS), len(contacts.LABELS)),
        orders: ("orders", orders.ROWS, len(orders.COLUMNS), len(orders.LABELS)),
    }
    lines += [(*size, module.ORIGIN, True, "generated") for module, size in sizes.items()]
    columns = ["name", "rows", "features", "classes", "source", "available", "where"]
    return pd.DataFrame(lines, columns=columns)


def _read(path: Path, name: str, file: _TableFile) -> pd.DataFrame:
    """Return the selected rows and columns of a file, with text stripped."""
    frame = pd.read_csv(path)
    needed = dict.fromkeys((*file.columns, *file.immutable, *file.increasing, *file.protected, file.target))
    problems = [f"no column {column}" for column in needed if column not in frame]
    for column in frame.columns[[not pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes]]:
        frame[column] = frame[column].str.strip()
    for column, known in ({file.target: file.labels} | dict(file.orders)).items():
        others = frame[column][~frame[column].isin(known)] if column in frame else pd.Series(dtype=object)
        if len(others):
            listed = ", ".join(map(repr, others.unique()[:5].tolist()))
            problems.append(
                f"{column} is {listed} in {len(others)} rows, not one of {', '.join(map(repr, known))}"
            )
    if problems:
        raise InvalidInputError(
            f"{path} must have the columns and labels of {name}; got: {'; '.join(problems)}. "
            f"Replace it with the original ({ORIGINS[name]})."
        )
    return file.choose(frame[list(file.columns)] if file.columns else frame).reset_index(drop=True)


# fmt: off
_FILES = {
    "german_credit": _TableFile(
        rows=1000, features=20, target="default", labels=(0, 1), study=lambda n: (700, 300),
        recipe="All rows and columns, in the order of the file.",
        immutable=("age", "personal_status_sex", "foreign_worker"), increasing=("present_emp_since",),
        protected=("personal_status_sex", "foreign_worker"),
        orders={
            "present_emp_since": (
                "unemployed", "... < 1 year", "1 <= ... < 4 years", "4 <= ... < 7 years", ".. >= 7 years",
            ),
        },
    ),
    "adult": _TableFile(
        rows=32561, features=12, target="class", labels=("<=50K", ">50K"), study=lambda n: (8000, 500),
        recipe="All rows, in the order of the file, without the columns fnlwgt (a weight of the census) and "
        "education-num (education again); ? is a level.",
        choose=lambda frame: frame.drop(columns=["fnlwgt", "education-num"], errors="ignore"),
        immutable=("age", "sex", "race", "native-country"), increasing=("education",),
        protected=("sex", "race"),
        orders={
            "education": (
                "Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad",
                "Some-college", "Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate",
            ),
        },
    ),
    "law": _TableFile(
        rows=2216, features=5, target="pass_bar", labels=(0, 1),
        study=lambda n: (int(0.8 * n), n - int(0.8 * n)),
        recipe="Rows without a missing value: all who failed, then as many of those who passed (seed 42).",
        columns=("lsat", "gpa", "zfygpa", "gender", "race1", "pass_bar"),
        choose=lambda frame: balance_classes(frame.dropna(), "pass_bar"),
        immutable=("gender", "race1"), protected=("gender", "race1"),
    ),
    "heloc": _TableFile(
        rows=10459, features=23, target="RiskPerformance", labels=("Bad", "Good"),
        study=lambda n: (n - 500, 500),
        recipe="All rows and columns, in the order of the file; the special codes -7, -8 and -9 are kept as "
        "numbers.",
    ),
}
# fmt: on
