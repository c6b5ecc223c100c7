"""The script that runs another library in a separate interpreter, without plausiflow.

Other libraries need other versions of packages than plausiflow, so data is exchanged in files:

- ``task.json`` has features, rules, target classes and limits; ``arrays.npz`` has the rows and the weights of
  the model. Rows are matrices with one column per feature: numbers in original units, and level codes. The
  model is evaluated here in NumPy, and its probabilities are compared with the ones in the file.
- ``METHOD.jsonl`` is the result: the processor seconds of the set-up, then for each row its counterfactual or
  the reason why there is none. It is written row by row, so that a time limit loses no finished row.

``--check METHODS`` prints the installed version of the package of each method.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Matrix = npt.NDArray[np.float64]

PACKAGES = {
    "dice_random": ("dice_ml", "dice-ml"),
    "dice_genetic": ("dice_ml", "dice-ml"),
    "nice_sparsity": ("nice", "NICEx"),
}
"""The module and the distribution of each method."""


class RowTimeout(BaseException):
    """The time limit of a row. It is no ``Exception``, so that no handler in a library catches it."""


class PeerModel:
    """An MLP on encoded rows, as a function of matrices.

    Attributes:
        features: Description of each column of a matrix.
        classes_: The classes, as in scikit-learn.
    """

    def __init__(self, features: list[dict[str, Any]], maps: list[tuple[Matrix, Matrix]]) -> None:
        self.features, self._maps = features, maps
        self.classes_ = np.arange(len(maps[-1][1]))

    def probabilities(self, rows: Matrix) -> Matrix:
        """Return the probability of each class, shape ``(n, k)``."""
        x = self._encoded(rows)
        for weight, bias in self._maps[:-1]:
            x = np.maximum(x @ weight.T + bias, 0.0)
        weight, bias = self._maps[-1]
        logits = x @ weight.T + bias
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def predict_proba(self, frame: pd.DataFrame) -> Matrix:
        """Return the probabilities for a table, as scikit-learn does."""
        return self.probabilities(self.matrix(frame))

    def predict(self, frame: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the most probable class."""
        return np.asarray(self.predict_proba(frame).argmax(axis=1))

    def frame(self, rows: Matrix) -> pd.DataFrame:
        """Return a matrix as a table: integers, floats, and text for levels."""
        columns = {}
        for column, feature in zip(rows.T, self.features, strict=True):
            if feature["levels"]:
                columns[feature["name"]] = pd.Series([str(int(code)) for code in column], dtype=object)
            else:
                columns[feature["name"]] = pd.Series(column.astype(np.int64 if feature["whole"] else float))
        return pd.DataFrame(columns)

    def matrix(self, frame: pd.DataFrame) -> Matrix:
        """Return a table as a matrix; the inverse of :meth:`frame`."""
        return np.stack([frame[f["name"]].astype(float).to_numpy() for f in self.features], axis=1)

    def _encoded(self, rows: Matrix) -> Matrix:
        parts = []
        for column, feature in zip(np.asarray(rows, dtype=float).T, self.features, strict=True):
            if feature["levels"]:
                parts.append(np.eye(feature["levels"])[column.astype(int)])
                continue
            start, end = _log_scale(np.array([feature["minimum"], feature["maximum"]]), feature["log"])
            number = (_log_scale(column, feature["log"]) - start) / ((end - start) or 1.0)
            states = [column == value for value in feature["special"]]
            special = np.any(states, axis=0) if states else np.zeros(len(column), dtype=bool)
            parts.append(np.where(special, number.clip(0, 1), number)[:, None])
            if states:
                parts.append(np.stack([~special, *states], axis=1).astype(float))
        return np.concatenate(parts, axis=1)


def _log_scale(values: Matrix, log: bool) -> Matrix:
    return np.sign(values) * np.log1p(np.abs(values)) if log else values


Explain = Callable[[int], Matrix]
"""Returns the counterfactual of the row at a position, one number per feature."""


def dice(task: dict[str, Any], arrays: dict[str, Matrix], model: PeerModel, method: str) -> Explain:
    """Return DiCE's explain function, with the rules that DiCE supports.

    The counterfactual is the one that DiCE shows: after its own step towards fewer changes.
    """
    package = importlib.import_module("dice_ml")
    names, outcome = [f["name"] for f in model.features], "target outcome"
    train = model.frame(arrays["train"]).assign(**{outcome: arrays["classes"].astype(int)})
    numbers = [f["name"] for f in model.features if not f["levels"]]
    data = package.Data(dataframe=train, continuous_features=numbers, outcome_name=outcome)
    explainer = package.Dice(
        data, package.Model(model=model, backend="sklearn"), method=method.removeprefix("dice_")
    )
    rows = model.frame(arrays["rows"])
    vary = [name for name in names if name not in task["immutable"]]

    def explain(i: int) -> Matrix:
        random.seed(task["seed"] + i)
        np.random.seed(task["seed"] + i)  # noqa: NPY002  (what DiCE draws from)
        found = explainer.generate_counterfactuals(
            rows.iloc[i : i + 1],
            total_CFs=1,
            desired_class=task["targets"][i],
            features_to_vary=vary,
            permitted_range=_permitted_ranges(task, arrays["rows"][i], model.features),
            verbose=False,
        ).cf_examples_list[0]
        shown = found.final_cfs_df if found.final_cfs_df_sparse is None else found.final_cfs_df_sparse
        if shown is None or not len(shown):
            raise ValueError("no counterfactual came back")
        return np.asarray(model.matrix(shown[names].iloc[:1])[0])

    return explain


def _permitted_ranges(
    task: dict[str, Any], row: Matrix, features: list[dict[str, Any]]
) -> dict[str, list[Any]]:
    """Return the permitted values of a row for features that may only increase."""
    ranges: dict[str, list[Any]] = {}
    for value, feature in zip(row, features, strict=True):
        if feature["name"] in task["increasing"]:
            levels = [str(code) for code in range(int(value), feature["levels"])]
            ranges[feature["name"]] = levels or [float(value), max(float(value), feature["maximum"])]
    return ranges


def nice(task: dict[str, Any], arrays: dict[str, Matrix], model: PeerModel, method: str) -> Explain:
    """Return NICE's explain function; NICE supports no rules."""
    package = importlib.import_module("nice")
    explainer = package.NICE(
        predict_fn=lambda rows: model.probabilities(np.atleast_2d(rows)),
        X_train=arrays["train"].copy(),
        cat_feat=[j for j, f in enumerate(model.features) if f["levels"]],
        num_feat=[j for j, f in enumerate(model.features) if not f["levels"]],
        y_train=arrays["classes"],
        optimization=method.removeprefix("nice_"),
        justified_cf=True,
    )

    def explain(i: int) -> Matrix:
        rows = arrays["rows"][i : i + 1].copy()
        return np.asarray(explainer.explain(rows, target_class=[task["targets"][i]])[0], dtype=float)

    return explain


def run(folder: Path, method: str) -> None:
    """Explain every row of a folder's task with a method, and write the counterfactuals."""
    task = json.loads((folder / "task.json").read_text())
    with np.load(folder / "arrays.npz") as file:
        arrays = {name: file[name] for name in file.files}
    maps = [(arrays[f"weight{i}"], arrays[f"bias{i}"]) for i in range(task["maps"])]
    model = PeerModel(task["features"], maps)
    difference = float(np.abs(model.probabilities(arrays["rows"]) - arrays["proba"]).max())
    if not difference < 1e-6:
        raise SystemExit(
            f"the model gives other probabilities in this process: they differ by {difference:.2g}"
        )
    made = dice if method.startswith("dice_") else nice
    before = time.process_time()
    with _quiet():
        explain = made(task, arrays, model, method)
    with open(folder / f"{method}.jsonl", "w") as file:
        _write(file, {"setup_cpu_seconds": time.process_time() - before})
        for i in range(len(arrays["rows"])):
            _write(file, _explain_row(explain, i, task["seconds_per_row"]))


def _explain_row(explain: Explain, i: int, seconds: float) -> dict[str, Any]:
    """Return the counterfactual of a row or the reason for having none, and the processor seconds."""
    values, why = None, ""
    before = time.process_time()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with _quiet():
            answer = explain(i)
        values, why = (answer.tolist(), "") if np.isfinite(answer).all() else (None, "not a number")
    except RowTimeout:
        why = "time limit"
    except Exception as error:  # any error means that the row has no counterfactual
        why = f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {"row": i, "values": values, "why": why, "cpu_seconds": time.process_time() - before}


@contextlib.contextmanager
def _quiet() -> Any:  # noqa: ANN401
    """Suppress progress output and warnings about versions."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            yield


def _write(file: Any, line: dict[str, Any]) -> None:  # noqa: ANN401
    file.write(json.dumps(line) + "\n")
    file.flush()


def versions(methods: list[str]) -> dict[str, str | None]:
    """Return the version of each method's package, or None if it cannot be imported."""
    found: dict[str, str | None] = {}
    for method in methods:
        module, distribution = PACKAGES[method]
        try:
            with _quiet():
                importlib.import_module(module)
            found[method] = f"{distribution} {metadata.version(distribution)}"
        except ImportError:
            found[method] = None
    return found


def _raise_timeout(*_: object) -> None:
    raise RowTimeout


def main(arguments: list[str]) -> None:
    """Run ``--check METHODS``, or a method on a folder."""
    if arguments[0] == "--check":
        print(json.dumps(versions(arguments[1:])))
        return
    signal.signal(signal.SIGALRM, _raise_timeout)
    run(Path(arguments[0]), arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
