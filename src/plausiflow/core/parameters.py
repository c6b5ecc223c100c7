"""Settings of a classifier or density as scikit-learn's tools read them: by name, and copied to a clone."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any, Self

from plausiflow.errors import InvalidInputError


class Parameters:
    """What :func:`sklearn.base.clone` and parameter searches need; for dataclasses whose fields are settings.

    scikit-learn's ``check_estimator`` does not apply: these classes take tensors of encoded rows, and their
    classes are numbered from zero.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; with ``deep``, also those of settings that have some, as ``a__b``."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.init}  # type: ignore[arg-type]
        if deep:
            for name, value in list(own.items()):
                if isinstance(value, Parameters):
                    own |= {f"{name}__{inner}": v for inner, v in value.get_params().items()}
        return own

    def set_params(self, **params: Any) -> Self:  # noqa: ANN401
        """Set some settings by name.

        Raises:
            InvalidInputError: There is no setting of this name.
        """
        known = self.get_params(deep=True)
        if unknown := [name for name in params if name not in known]:
            raise InvalidInputError(
                f"`set_params` takes settings of {type(self).__name__}; got {', '.join(unknown)}. Choose "
                f"from {', '.join(known)}."
            )
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if inner:
                getattr(self, outer).set_params(**{inner: value})
            else:
                setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        """Return an object with the same settings that is not fitted."""
        params = self.get_params(deep=False)
        return type(self)(
            **{
                name: value.__sklearn_clone__() if isinstance(value, Parameters) else copy.deepcopy(value)
                for name, value in params.items()
            }
        )
