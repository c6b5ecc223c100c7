"""Load actions that were saved, and assign rows to them again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from plausiflow.errors import InvalidInputError, PlausiflowError
from plausiflow.explainer.assigning import FixedActions, GroupCall, RowAssigner
from plausiflow.explainer.identity import differences, explainer_identity
from plausiflow.groups import FORMAT, KIND, GroupExplanations
from plausiflow.persistence import VALUE_ERRORS, damaged_file, read_json_file, restore_rows

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer


def load_groups(explainer: Explainer, path: str | Path) -> GroupExplanations:
    """Load actions that :meth:`GroupExplanations.save` wrote.

    If the rows were saved, they are assigned and verified again. Otherwise the result has no rows;
    ``result.assign(rows)`` assigns some.

    Args:
        explainer: The explainer that chose the actions, or one that was saved and loaded.
        path: Name of the file.

    Raises:
        ArtefactError: The file cannot be read, is damaged, or is something else.
        InvalidInputError: Another explainer chose the actions.
    """
    path = Path(path)
    document = read_json_file(path, KIND, FORMAT)
    try:
        different = differences(explainer_identity(explainer), document["explainer"])
        if not different:
            return _restored(explainer, document)
    except PlausiflowError:
        raise
    except VALUE_ERRORS as error:
        text = " ".join(str(error).split())[:300]
        raise damaged_file(path, KIND, f"its parts do not fit ({type(error).__name__}: {text})") from error
    raise InvalidInputError(
        f"The explainer must be the one that chose the actions in {path}; this one differs in "
        f"{', '.join(different)}. Load that one, or choose actions again: `explainer.explain_groups(rows)`."
    )


def _restored(explainer: Explainer, document: Mapping[str, Any]) -> GroupExplanations:
    encoder, _, _ = explainer._fitted()
    call = GroupCall.from_dict(document["call"])
    assigner = RowAssigner(
        explainer=explainer, call=call, fixed=FixedActions.from_dict(encoder.layout, document["fixed"])
    )
    stored = document.get("rows")
    rows: pd.DataFrame = restore_rows(stored) if stored else _no_rows(explainer)
    result = assigner(rows)
    if stored and result.action.tolist() != document["action"]:
        changed = sum(a != b for a, b in zip(result.action.tolist(), document["action"], strict=True))
        raise InvalidInputError(
            f"The explainer must assign the saved rows as before; {changed} of {len(rows)} rows now have "
            "another action. Use the explainer and the versions of libraries that the file was saved with."
        )
    return result


def _no_rows(explainer: Explainer) -> pd.DataFrame:
    encoder, _, _ = explainer._fitted()
    return encoder.decode(torch.zeros(0, encoder.layout.width, dtype=torch.float64))
