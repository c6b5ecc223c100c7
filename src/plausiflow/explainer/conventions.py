"""The conventions of scikit-learn: parameters, clones, tags, and what ``check_is_fitted`` asks.

A clone has the same settings and is not fitted. It keeps the very model that is explained: a copy of a fitted
model would no longer be fitted, and ``fit`` of an explainer never changes it.
"""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from plausiflow.errors import InvalidInputError, NotFittedError

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from plausiflow.search import Engine
    from plausiflow.tables import Encoder

SHARED = ("model", "plausibility", "method", "retrain")
"""Settings that may hold fitted objects; a clone has the same ones."""


class SklearnConventions:
    """What scikit-learn's tools ask of an estimator."""

    model: Any
    encoder_: Encoder | None
    engine_: Engine | None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; with ``deep``, also those of the model, as in ``model__C``."""
        params = {name: getattr(self, name) for name in self._settings()}
        if deep and hasattr(self.model, "get_params") and not isinstance(self.model, type):
            params |= {f"model__{name}": value for name, value in self.model.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:  # noqa: ANN401
        """Set some settings by name, and those of the model, as in ``model__C``; ``fit`` checks them.

        Raises:
            InvalidInputError: There is no setting of this name.
        """
        known = self._settings()
        of_model = {
            name.removeprefix("model__"): v for name, v in params.items() if name.startswith("model__")
        }
        own = {name: value for name, value in params.items() if not name.startswith("model__")}
        if unknown := [name for name in own if name not in known]:
            raise InvalidInputError(
                f"`set_params` takes settings of an explainer; got {', '.join(unknown)}. Choose from "
                f"{', '.join(known)}."
            )
        for name, value in own.items():
            setattr(self, name, value)
        if of_model:
            self.model.set_params(**of_model)
        return self

    def _settings(self) -> list[str]:
        """Return the names of the settings."""
        return [f.name for f in fields(self) if f.init]  # type: ignore[arg-type]

    def __sklearn_clone__(self) -> Self:
        """Return an explainer with the same settings that is not fitted."""
        params = self.get_params(deep=False)
        copied = {n: value if n in SHARED else copy.deepcopy(value) for n, value in params.items()}
        return type(self)(**copied)

    def __sklearn_tags__(self) -> Tags:
        """Return what kind of estimator this is: none of scikit-learn's kinds, for tables of any columns."""
        from sklearn.utils import InputTags, Tags, TargetTags

        rows = InputTags(two_d_array=True, categorical=True, string=True, allow_nan=True)
        return Tags(estimator_type=None, target_tags=TargetTags(required=False), input_tags=rows)

    def __sklearn_is_fitted__(self) -> bool:
        return self.engine_ is not None

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """The names of the columns that ``fit`` saw."""
        if self.encoder_ is None:
            raise NotFittedError("`feature_names_in_` is known after `fit(x, y)`. Call it first.")
        return np.array(self.encoder_.schema.names, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """The number of columns that ``fit`` saw."""
        return len(self.feature_names_in_)
