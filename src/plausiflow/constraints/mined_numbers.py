r"""Learn relations between numbers: one at most another, and columns that are computed from others.

``a <= b`` is tested like every rule (:mod:`plausiflow.tables.evidence`), against the chance that a value
of one column exceeds a value of the other, each drawn from its own column. ``a + c <= b``, as in years of
work and age, is tested in the same way with the largest positive ``c`` that holds. Any two related columns
have such a ``c``, but a bound that is a rule has many rows at it, and the largest difference of noise has
one: at least one in a hundred rows must be at the bound.

Equalities are multiples (``a = k b + c``), sums and differences of two columns, and sums with small whole
coefficients of any number of columns, which are found in the null space of the table. An equality must hold
up to half of the finest step of its columns, and every column must matter: leaving any one out must break the
equality in the same way that a wrong rule would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from plausiflow.constraints.clauses import special_values
from plausiflow.constraints.implies import Implies
from plausiflow.constraints.learned import LearnedRule
from plausiflow.constraints.linear import Relation
from plausiflow.constraints.linear_rules import Equal, Linear
from plausiflow.constraints.mined_states import quoted_name
from plausiflow.constraints.mined_weights import weighted_sums
from plausiflow.constraints.rule import Rule
from plausiflow.tables import EXCEPTIONS, FEWEST_ROWS, Evidence, Feature, FloatArray, IntArray, least_expected

SAMPLE, FEW, SHUFFLES, LARGEST = 64, 24, 5, 12
MOST_COLUMNS = 300
CORRELATED = 0.99
AT_BOUND = 0.01
"""Share of rows at the bound of a rule ``a + c <= b``."""


@dataclass
class NumberMiner:
    """Relations between the numbers of a table.

    Attributes:
        features: Features of the table, by name.
        values: Their values, NaN if missing, shape ``(n, columns)``.
        names: Names of the columns.
        evidence: The test of a rule.
        random_state: Seed of the samples of rows.
    """

    features: Mapping[str, Feature]
    values: FloatArray
    names: list[str]
    evidence: Evidence
    random_state: int = 0
    rules: list[LearnedRule] = field(default_factory=list)
    equalities: list[dict[int, float]] = field(default_factory=list)

    def run(self) -> list[LearnedRule]:
        """Return the equalities, then the inequalities that do not follow from them."""
        if len(self.names) < 2 or not len(self.values):
            return []
        regular = np.array(self.values)
        for j, name in enumerate(self.names):
            feature = self.features[name]
            special = [v for v in special_values(feature) if v != 0] if feature.is_number else []
            regular[np.isin(regular[:, j], special), j] = np.nan
        tables = (
            [self.values] if np.array_equal(regular, self.values, equal_nan=True) else [self.values, regular]
        )
        for table in tables:
            self._multiples(table)
            self._sums_of_two(table)
            self._null_space(table)
            self._weighted(table)
        self._orders(tables)
        return self.rules

    def _step(self, coefficients: Mapping[int, float], constant: float = 0.0) -> float:
        named = {self.names[j]: a for j, a in coefficients.items()}
        return Relation(named, constant, equal=True).half_step(self.features)

    def _multiples(self, table: FloatArray) -> None:
        """Learn ``a = k b + c``; a may be rounded to its grid."""
        for i, j in self._correlated(table):
            known = np.isfinite(table[:, i]) & np.isfinite(table[:, j])
            a, b = table[known, i], table[known, j]
            found = []
            for target, source, x, y in ((i, j, b, a), (j, i, a, b)):
                slope = self._slope(target, x, y)
                if slope is not None:
                    # The relation that leaves less room, as a share of the range, comes first.
                    digits = len(f"{abs(slope[0]):.12e}".split("e")[0].rstrip("0"))
                    room = float(f"{slope[2] / np.ptp(y):.2g}"), digits
                    found.append((room, {target: -1.0, source: slope[0]}, *slope[1:]))
            for _, coefficients, constant, tolerance in sorted(found, key=lambda each: each[0]):
                if self._try(coefficients, constant, tolerance, table):
                    break

    def _correlated(self, table: FloatArray) -> list[tuple[int, int]]:
        correlation = _correlations(table)
        return [(i, j) for i, j in np.argwhere(np.abs(correlation) > CORRELATED).tolist() if i < j]

    def _slope(self, target: int, x: FloatArray, y: FloatArray) -> tuple[float, float, float] | None:
        """Return slope, constant and tolerance of ``y = slope x + constant`` with few digits, if it holds."""
        spread = ((x - x.mean()) ** 2).sum()
        if not spread:
            return None
        raw = ((x - x.mean()) * (y - y.mean())).sum() / spread
        step = self.features[self.names[target]].step or 0.0
        rounding = step / 2 if step else 1e-9 * (np.ptp(y) or 1.0)
        for digits in range(1, 7):
            slope = float(f"{raw:.{digits}g}")
            constant = float(np.median(y - slope * x))
            constant = round(constant / step) * step if step else float(f"{constant:.9g}")
            fits = np.abs(y - slope * x - constant) <= rounding * 1.001
            if slope and (~fits).sum() <= EXCEPTIONS * len(x):
                return slope, constant, float(f"{rounding * 1.001:.4g}")
        return None

    def _sums_of_two(self, table: FloatArray) -> None:
        """Learn ``a = b + c``; a few rows rule most triples out, some more the others.

        With more than 300 columns, sums are left to the null space, so that the work is bounded.
        """
        if len(self.names) > MOST_COLUMNS:
            return
        generator = np.random.default_rng(self.random_state)
        some = table[generator.permutation(len(table))[: 4 * SAMPLE]]
        few, largest = some[:FEW], np.abs(some).max(axis=0, initial=0.0, where=np.isfinite(some))
        first, second = np.triu_indices(len(self.names), 1)
        sums = few[:, first] + few[:, second]
        for k in range(len(self.names)):
            step = 1.01 * max(self._step({k: 1.0}), 1e-9 * float(largest[k]))
            wrong = (np.abs(sums - few[:, k, None]) > step).sum(axis=0)  # NaN is not wrong
            left = np.flatnonzero((wrong <= 1) & (first != k) & (second != k))
            gap = np.abs(some[:, first[left]] + some[:, second[left]] - some[:, k, None])
            likely = ((gap > step).sum(axis=0) <= 1) & (np.isfinite(gap).sum(axis=0) >= 20)
            for p in left[likely].tolist():
                self._try({k: -1.0, int(first[p]): 1.0, int(second[p]): 1.0}, 0.0, None, table)

    def _null_space(self, table: FloatArray) -> None:
        """Learn sums of several columns with small whole coefficients."""
        dependent = {min(found) for found in self.equalities}
        columns = [j for j in range(len(self.names)) if j not in dependent]
        complete = np.isfinite(table[:, columns]).all(axis=1)
        rows = table[complete][:, columns]
        generator = np.random.default_rng(self.random_state)
        if len(columns) < 3 or len(rows) < 4 * len(columns):
            return
        for _ in range(3):
            some = rows[generator.permutation(len(rows))[: 8 * len(columns)]]
            for vector in _null_vectors(some):
                pivot = np.abs(vector).max()
                whole = vector / np.abs(vector[np.abs(vector) > 1e-6 * pivot]).min()
                near = np.rint(whole)
                if np.abs(whole - near).max() > 1e-3 or np.abs(near).max() > LARGEST:
                    continue
                used = {columns[i]: float(near[i]) for i in np.flatnonzero(near).tolist()}
                constant = -float(np.median(some @ near))
                if len(used) >= 3:
                    self._try(_signed(used), constant * _sign(used), None, table)

    def _weighted(self, table: FloatArray) -> None:
        """Learn weighted sums of several columns; the result may be rounded to its grid."""
        tolerances = [1.001 * (self.features[name].step or 0.0) / 2 for name in self.names]
        related = [frozenset(found) for found in self.equalities]
        for found in weighted_sums(table, tolerances, related, self.random_state):
            columns = frozenset(found.coefficients)
            if not any(own <= columns for own in related) and self._try(
                found.coefficients, found.constant, float(f"{found.tolerance:.4g}"), table
            ):
                related.append(columns)

    def _try(
        self, coefficients: dict[int, float], constant: float, tolerance: float | None, table: FloatArray
    ) -> bool:
        """Learn an equality ``sum + constant = 0`` if the rows show it and every column matters."""
        if any(set(found) == set(coefficients) for found in self.equalities):
            return False
        slack = tolerance or self._step(coefficients, constant)
        parts = {j: a * table[:, j] for j, a in coefficients.items()}
        total = sum(parts.values(), np.full(len(table), constant))
        known = np.isfinite(total)
        size = np.stack([np.abs(part[known]) for part in parts.values()]).sum(axis=0)
        slacks = slack + 1e-12 * size
        broken = int((np.abs(total[known]) > slacks).sum())
        if known.sum() < 30 or broken > EXCEPTIONS * known.sum():
            return False
        generator = np.random.default_rng(self.random_state)
        for part in parts.values():
            shuffled = [generator.permutation(part[known]) for _ in range(SHUFFLES)]
            misses = [(np.abs(total[known] - part[known] + s) > slacks).mean() for s in shuffled]
            if not self.evidence.accepts(broken, int(known.sum()), float(np.mean(misses))).all():
                return False
        relation = {self.names[j]: a for j, a in coefficients.items()}
        equality = _equality(relation, constant, None if tolerance is None else float(tolerance))
        rule = None if equality is None else self._bound_to(equality, table, coefficients)
        if rule is None:
            return False
        self.equalities.append(coefficients)
        self.rules.append(LearnedRule(rule, len(table), int(known.sum()), broken))
        return True

    def _bound_to(
        self, rule: Rule, table: FloatArray, columns: Sequence[int] | dict[int, float]
    ) -> Rule | None:
        """Return the rule for rows without the special values that were left out."""
        if table is self.values:
            return rule
        conditions = []
        for j in columns:
            feature = self.features[self.names[j]]
            special = [v for v in special_values(feature) if v != 0] if feature.is_number else []
            if special:
                values = ", ".join(f"{v:.12g}" for v in special)
                conditions.append(f"{quoted_name(feature.name)} not in [{values}]")
        if not conditions:
            return None
        return Implies(" and ".join(conditions), _as_condition(rule))

    def _orders(self, tables: Sequence[FloatArray]) -> None:
        found: dict[tuple[int, int], LearnedRule] = {}
        for table in tables:
            # Special values are no bounds, so differences are those of the other values.
            for i, j, gap, rule in self._orders_of(table, gaps=table is tables[-1]):
                if not gap:
                    found.setdefault((i, j), rule)
                elif not self._follows_from_sum(i, j, gap):
                    self.rules.append(rule)
        edges = np.zeros((len(self.names),) * 2, dtype=bool)
        for i, j in found:
            edges[i, j] = not edges[j, i]
        follows = (edges.astype(np.float32) @ edges.astype(np.float32)) > 0
        for (i, j), rule in found.items():
            if edges[i, j] and not follows[i, j] and not self._follows_from_sum(i, j):
                self.rules.append(rule)

    def _orders_of(self, table: FloatArray, *, gaps: bool) -> Iterator[tuple[int, int, float, LearnedRule]]:
        """Return the orders of two columns with their gaps, without those that may be coincidences."""
        tried = list(self._likely_orders(table, gaps=gaps))
        tests = np.array([self._order_test(table, *order) for order in tried]).reshape(-1, 3)
        expected = tests[:, 1] * tests[:, 2]
        near = np.flatnonzero(self.evidence.misses(*tests.T) & (np.array([gap for *_, gap in tried]) == 0))

        def rows_of(k: int) -> IntArray:
            i, j, _ = tried[near[k]]
            return np.flatnonzero(table[:, i] > table[:, j])

        least = least_expected(len(table), expected[near], rows_of)
        for k in np.flatnonzero(self.evidence.accepts(*tests.T)).tolist():
            i, j, gap = tried[k]
            names = [quoted_name(self.names[column]) for column in (i, j)]
            if None in names or (not gap and expected[k] < least):
                continue
            offset = f" + {gap:.12g}" if gap else ""
            rule = self._bound_to(Linear(f"{names[0]}{offset} <= {names[1]}"), table, [i, j])
            if rule is not None:
                yield i, j, gap, LearnedRule(rule, len(table), int(tests[k, 1]), int(tests[k, 0]))

    @staticmethod
    def _order_test(table: FloatArray, i: int, j: int, gap: float) -> tuple[int, int, float]:
        """Return the rows that break an order, those that it is about, and the chance to break it."""
        known = np.isfinite(table[:, i]) & np.isfinite(table[:, j])
        a, b = table[known, i] + gap, table[known, j]
        if (a == b).all():
            return 0, 0, 0.0
        chance = float(np.searchsorted(np.sort(b), a, side="left").mean() / len(b))
        return int((a > b).sum()), len(a), chance

    def _likely_orders(self, table: FloatArray, *, gaps: bool) -> Iterator[tuple[int, int, float]]:
        """Return pairs of columns with a gap the first of which is hardly ever above the second."""
        for i in range(len(self.names)):
            known = np.isfinite(table[:, i : i + 1]) & np.isfinite(table)
            broken = (known & (table[:, i : i + 1] > table)).sum(axis=0)
            count = known.sum(axis=0)
            likely = (broken <= EXCEPTIONS * count + 1) & (count >= FEWEST_ROWS)
            likely[i] = False
            least = dict.fromkeys(np.flatnonzero(likely).tolist(), 0.0)
            least |= self._gaps(table, i) if gaps else {}
            yield from ((i, j, gap) for j, gap in least.items())

    def _gaps(self, table: FloatArray, i: int) -> dict[int, float]:
        """Return by how much column i is at least below others, where many rows have just this difference.

        A sample of rows rules most columns out. Only columns on one grid are compared.
        """
        step = self.features[self.names[i]].step
        same = [j for j, name in enumerate(self.names) if j != i and self.features[name].step == step]
        if not step or not same:
            return {}
        sample = self._sample(table)
        apart = sample[:, same] - sample[:, i : i + 1]
        least = np.nanmin(apart, axis=0, initial=np.inf)
        often = (apart <= least + step / 2).sum(axis=0) >= 2
        gaps = {}
        for j in np.array(same)[often & (least > 0) & np.isfinite(least)].tolist():
            apart = table[:, j] - table[:, i]
            apart = np.sort(apart[np.isfinite(apart)])
            gap = round(float(apart[int(EXCEPTIONS * len(apart))]) / step) * step
            at_bound = int((np.abs(apart - gap) < step / 2).sum())
            if gap > 0 and at_bound >= max(FEWEST_ROWS, AT_BOUND * len(apart)):
                gaps[j] = gap
        return gaps

    def _sample(self, table: FloatArray) -> FloatArray:
        generator = np.random.default_rng(self.random_state)
        return table[generator.permutation(len(table))[: 8 * SAMPLE]]

    def _follows_from_sum(self, i: int, j: int, gap: float = 0.0) -> bool:
        """Whether column i is a part of column j, whose other parts are nonnegative and sum to ``gap``."""
        for found in self.equalities:
            parts = [k for k in found if k != j]
            if i in parts and j in found and all(found[k] * found[j] < 0 for k in parts):
                least = [np.nanmin(self.values[:, k]) for k in parts if k != i]
                enough = sum(least) >= gap  # other coefficients are whole numbers
                if abs(found[i]) >= abs(found[j]) and all(value >= 0 for value in least) and enough:
                    return True
        return False


def _null_vectors(rows: FloatArray) -> FloatArray:
    """Return sparse vectors whose product with centred rows is about zero, shape ``(k, columns)``."""
    spread = rows.std(axis=0)
    fine = spread > 0
    if fine.sum() < 3:
        return np.zeros((0, rows.shape[1]))
    scaled = (rows[:, fine] - rows[:, fine].mean(axis=0)) / spread[fine]
    _, sizes, turned = np.linalg.svd(scaled, full_matrices=False)
    basis = turned[sizes < 1e-6 * sizes.max()] / spread[fine]
    for k in range(len(basis)):  # row echelon form: each relation leaves out the pivots of the others
        pivot = int(np.abs(basis[k] * spread[fine]).argmax())
        basis[k] /= basis[k, pivot]
        for other in range(len(basis)):
            if other != k:
                basis[other] -= basis[other, pivot] * basis[k]
    vectors = np.zeros((len(basis), rows.shape[1]))
    vectors[:, fine] = basis
    return vectors


def _sign(coefficients: Mapping[int, float]) -> float:
    """Return the sign that makes the one column whose sign differs from the others negative."""
    negative = [j for j, a in coefficients.items() if a < 0]
    return -1.0 if len(negative) == len(coefficients) - 1 or not negative else 1.0


def _signed(coefficients: Mapping[int, float]) -> dict[int, float]:
    sign = _sign(coefficients)
    return {j: sign * a for j, a in coefficients.items()}


def _equality(coefficients: Mapping[str, float], constant: float, tolerance: float | None) -> Equal | None:
    """Return the equality solved for a column with coefficient -1; None if the grammar cannot name it."""
    left = next((name for name, a in coefficients.items() if a == -1), None)
    names = {name: quoted_name(name) for name in coefficients}
    if left is None or None in names.values():
        return None
    terms = []
    for name, a in coefficients.items():
        if name != left:
            factor = "" if abs(a) == 1 else f"{abs(a):.12g} * "
            terms.append(f"{'-' if a < 0 else '+'} {factor}{names[name]}")
    if constant:
        terms.append(f"{'-' if constant < 0 else '+'} {abs(constant):.12g}")
    text = " ".join(terms).removeprefix("+ ")
    return Equal(left, text.replace("- ", "-", 1) if text.startswith("- ") else text, tolerance)


def _as_condition(rule: Rule) -> str:
    if isinstance(rule, Linear):
        return rule.text
    assert isinstance(rule, Equal)
    return f"{quoted_name(rule.feature)} == {rule.expression}"


def _correlations(table: FloatArray) -> FloatArray:
    """Return the correlation of each pair of columns over the rows where both are known; zero without any."""
    known = np.isfinite(table)
    with np.errstate(all="ignore"):
        count = known.sum(axis=0)
        x = np.where(known, table, 0.0)
        x = np.where(known, x - x.sum(axis=0) / count, 0.0)
        x = x / (np.abs(x).max(axis=0, initial=0.0) + (count == 0))
        both = known.astype(np.float64)
        n = both.T @ both
        mean, square = x.T @ both / n, (x * x).T @ both / n
        spread = np.sqrt((square - mean**2).clip(0))
        correlation = (x.T @ x / n - mean * mean.T) / (spread * spread.T)
    return np.asarray(np.nan_to_num(correlation, nan=0.0, posinf=0.0, neginf=0.0))
