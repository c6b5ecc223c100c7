"""The script that runs a peer in an interpreter of its own, beside none of plausiflow.

Peers need other versions of packages than plausiflow does. So they get files and write a file:

- ``task.json``: features, rules, wanted classes, limits; ``arrays.npz``: rows, and the weights of the model.
  Rows are matrices with one column for each feature, numbers in original units and categories as the numbers
  of their levels. The model is evaluated here, in NumPy; it must give the probabilities that came with it.
- ``METHOD.jsonl``: first the processor seconds of the set-up, then for each row its answer or why there is
  none. It is written row by row, so that what was found stays when time is over.

``--check METHODS`` prints which version of its package each method would run.
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
"""The module of each method, and the distribution that it comes from."""


class OutOfTime(BaseException):
    """Not an ``Exception``, so that no handler inside a peer swallows it."""


class Model:
    """A perceptron of encoded rows, as a function of matrices.

    Attributes:
        features: What each column of a matrix is, and where it lies in an encoded row.
        classes_: Where scikit-learn keeps the classes.
    """

    def __init__(self, features: list[dict[str, Any]], maps: list[tuple[Matrix, Matrix]]) -> None:
        self.features, self._maps = features, maps
        self.classes_ = np.arange(len(maps[-1][1]))

    def probabilities(self, rows: Matrix) -> Matrix:
        """Of each class, shape ``(n, k)``."""
        x = self._encoded(rows)
        for weight, bias in self._maps[:-1]:
            x = np.maximum(x @ weight.T + bias, 0.0)
        weight, bias = self._maps[-1]
        logits = x @ weight.T + bias
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def predict_proba(self, frame: pd.DataFrame) -> Matrix:
        """The same of a table, as scikit-learn's models have it."""
        return self.probabilities(self.matrix(frame))

    def predict(self, frame: pd.DataFrame) -> npt.NDArray[np.int64]:
        """The most probable class."""
        return np.asarray(self.predict_proba(frame).argmax(axis=1))

    def frame(self, rows: Matrix) -> pd.DataFrame:
        """A matrix as a table: whole numbers, numbers, and texts for levels."""
        columns = {}
        for column, feature in zip(rows.T, self.features, strict=True):
            if feature["levels"]:
                columns[feature["name"]] = pd.Series([str(int(code)) for code in column], dtype=object)
            else:
                columns[feature["name"]] = pd.Series(column.astype(np.int64 if feature["whole"] else float))
        return pd.DataFrame(columns)

    def matrix(self, frame: pd.DataFrame) -> Matrix:
        """The other way."""
        return np.stack([frame[f["name"]].astype(float).to_numpy() for f in self.features], axis=1)

    def _encoded(self, rows: Matrix) -> Matrix:
        parts = []
        for column, feature in zip(np.asarray(rows, dtype=float).T, self.features, strict=True):
            if feature["levels"]:
                parts.append(np.eye(feature["levels"])[column.astype(int)])
                continue
            start, end = _scaled(np.array([feature["minimum"], feature["maximum"]]), feature["log"])
            parts.append(((_scaled(column, feature["log"]) - start) / ((end - start) or 1.0))[:, None])
            if feature["zero_state"]:
                parts.append(np.stack([column != 0, column == 0], axis=1).astype(float))
        return np.concatenate(parts, axis=1)


def _scaled(values: Matrix, log: bool) -> Matrix:
    return np.sign(values) * np.log1p(np.abs(values)) if log else values


Explain = Callable[[int], Matrix]
"""The answer to the row at a position, one number for each feature."""


def dice(task: dict[str, Any], arrays: dict[str, Matrix], model: Model, method: str) -> Explain:
    """DiCE, told which features may vary and, where one may only rise, in which range.

    The answer is the one it shows people: after its own step towards fewer changes.
    """
    package = importlib.import_module("dice_ml")
    names, outcome = [f["name"] for f in model.features], "wanted outcome"
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
            permitted_range=_rising(task, arrays["rows"][i], model.features),
            verbose=False,
        ).cf_examples_list[0]
        shown = found.final_cfs_df if found.final_cfs_df_sparse is None else found.final_cfs_df_sparse
        if shown is None or not len(shown):
            raise ValueError("no counterfactual came back")
        return np.asarray(model.matrix(shown[names].iloc[:1])[0])

    return explain


def _rising(task: dict[str, Any], row: Matrix, features: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """What a row may become where a feature may only rise."""
    ranges: dict[str, list[Any]] = {}
    for value, feature in zip(row, features, strict=True):
        if feature["name"] in task["increasing"]:
            levels = [str(code) for code in range(int(value), feature["levels"])]
            ranges[feature["name"]] = levels or [float(value), max(float(value), feature["maximum"])]
    return ranges


def nice(task: dict[str, Any], arrays: dict[str, Matrix], model: Model, method: str) -> Explain:
    """NICE; it has no way to be told what may change."""
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
    """Answer every row of a folder's task with a method, and write the answers."""
    task = json.loads((folder / "task.json").read_text())
    with np.load(folder / "arrays.npz") as file:
        arrays = {name: file[name] for name in file.files}
    maps = [(arrays[f"weight{i}"], arrays[f"bias{i}"]) for i in range(task["maps"])]
    model = Model(task["features"], maps)
    difference = float(np.abs(model.probabilities(arrays["rows"]) - arrays["proba"]).max())
    if not difference < 1e-6:
        raise SystemExit(f"the model gives other probabilities here: they differ by {difference:.2g}")
    made = dice if method.startswith("dice_") else nice
    before = time.process_time()
    with _quiet():
        explain = made(task, arrays, model, method)
    with open(folder / f"{method}.jsonl", "w") as file:
        _write(file, {"setup_cpu_seconds": time.process_time() - before})
        for i in range(len(arrays["rows"])):
            _write(file, _timed(explain, i, task["seconds_per_row"]))


def _timed(explain: Explain, i: int, seconds: float) -> dict[str, Any]:
    """The answer to a row, or why there is none, and the processor seconds it took."""
    values, why = None, ""
    before = time.process_time()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with _quiet():
            answer = explain(i)
        values, why = (answer.tolist(), "") if np.isfinite(answer).all() else (None, "not a number")
    except OutOfTime:
        why = "time limit"
    except Exception as error:  # whatever a peer raises for a row means that it has no answer
        why = f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {"row": i, "values": values, "why": why, "cpu_seconds": time.process_time() - before}


@contextlib.contextmanager
def _quiet() -> Any:  # noqa: ANN401
    """Peers print progress and warn about versions."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            yield


def _write(file: Any, line: dict[str, Any]) -> None:  # noqa: ANN401
    file.write(json.dumps(line) + "\n")
    file.flush()


def versions(methods: list[str]) -> dict[str, str | None]:
    """Which version of its package each method would run; nothing where it cannot be imported."""
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


def _out_of_time(*_: object) -> None:
    raise OutOfTime


def main(arguments: list[str]) -> None:
    """``--check METHODS``, or a folder and a method."""
    if arguments[0] == "--check":
        print(json.dumps(versions(arguments[1:])))
        return
    signal.signal(signal.SIGALRM, _out_of_time)
    run(Path(arguments[0]), arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
