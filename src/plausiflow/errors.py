"""Errors of plausiflow; each message says what was expected, what came and what to do."""


class PlausiflowError(Exception):
    """Base class of every error that plausiflow raises."""


class ShapeError(PlausiflowError, ValueError):
    """An array has the wrong number of dimensions, rows or columns."""


class InvalidInputError(PlausiflowError, ValueError):
    """A value, a class or a setting is not allowed."""


class NotFittedError(PlausiflowError, RuntimeError, AttributeError):
    """An object was used before its ``fit``."""


class TrainingError(PlausiflowError, RuntimeError):
    """A model could not be trained: the loss of every epoch is NaN or infinite."""


class ModelError(PlausiflowError, RuntimeError):
    """The explained model raised an error, or returned something that is not a prediction."""


class DataNotFoundError(PlausiflowError, FileNotFoundError):
    """A data set or a reference file is not on this machine."""


class MissingExtraError(PlausiflowError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: The missing package.
        extra: The extra of plausiflow that installs it; None to install the package itself.
        purpose: What needs it, as the start of a sentence.
    """

    def __init__(self, package: str, extra: str | None, purpose: str) -> None:
        install = package if extra is None else f'"plausiflow[{extra}]"'
        super().__init__(
            f"{purpose} needs the package `{package}`, which is not installed. "
            f"Install it with: pip install {install}"
        )
