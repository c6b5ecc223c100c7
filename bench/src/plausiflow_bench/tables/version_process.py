"""The search of one version of plausiflow, also as a script that another environment's interpreter runs.

Nothing but plausiflow is imported from this project, and only names that old and new versions have. Data is
exchanged in files, which are pickles because the model is one of scikit-learn:

- The input has the model, the training rows with labels, the rows to explain, the wanted label of each, the
  rules as names of classes and features, the orders of levels and the seed. It also has the probabilities of
  the rows: the script refuses a model that gives others here.
- The output has the counterfactuals as rows of the table, and the position of the row of each.

``--check`` prints the version and a hash of the source code.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import plausiflow

CODE_LENGTH = 10


def describe() -> dict[str, str]:
    """Return the version of plausiflow that is imported here, and a hash of its source code."""
    folder, digest = Path(plausiflow.__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return {"version": plausiflow.__version__, "code": digest.hexdigest()[:CODE_LENGTH]}


def explain(task: dict[str, Any], confidence: float | None = None) -> dict[str, Any]:
    """Fit an explainer to the training rows of a task, and explain its rows.

    Settings are the default of the version, but for a ``confidence`` that is given. There are no judges,
    because these never guide a search.
    """
    difference = float(np.abs(task["model"].predict_proba(task["rows"]) - task["proba"]).max())
    if not difference < 1e-6:
        raise ValueError(
            f"The model must give the same probabilities as in the other environment; they differ by "
            f"{difference:.2g}. Install the same version of scikit-learn."
        )
    given: dict[str, Any] = {} if confidence is None else {"confidence": confidence}
    explainer = plausiflow.Explainer(
        task["model"],
        constraints=[getattr(plausiflow, kind)(*names) for kind, names in task["rules"]],
        orders=task["orders"],
        judges=0,
        random_state=task["seed"],
        **given,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = explainer.fit(task["x"], task["y"]).explain(task["rows"], task["targets"])
    return {"answers": result.answers, "of": np.asarray(result.of)}


def main(arguments: list[str]) -> None:
    """Run ``--check``, or read a task from the first file and write its counterfactuals to the second."""
    if arguments == ["--check"]:
        print(json.dumps(describe()))
        return
    task, answers = map(Path, arguments)
    answers.write_bytes(pickle.dumps(explain(pickle.loads(task.read_bytes()))))


if __name__ == "__main__":
    main(sys.argv[1:])
