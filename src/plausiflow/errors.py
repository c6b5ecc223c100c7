"""What can go wrong, each with a message that says what was expected, what came and what to do."""


class PlausiflowError(Exception):
    """The base of every error that plausiflow raises on purpose."""


class ShapeError(PlausiflowError, ValueError):
    """An array has the wrong number of dimensions, rows or columns."""


class InvalidInputError(PlausiflowError, ValueError):
    """A value, a class or a setting is outside what is allowed here."""


class NotFittedError(PlausiflowError, RuntimeError):
    """Something was used before its ``fit``."""


class TrainingError(PlausiflowError, RuntimeError):
    """A model could not be trained: every epoch gave a loss that is not a number."""


class ModelError(PlausiflowError, RuntimeError):
    """The model that is explained raised, or answered with something that is not a prediction."""


class DataNotFoundError(PlausiflowError, FileNotFoundError):
    """A data set or a reference file is not on this machine."""


class MissingExtraError(PlausiflowError, ImportError):
    """An optional dependency is needed here.

    Args:
        package: The package that is not installed.
        extra: The extra of plausiflow that installs it; None for a distribution of its own.
        purpose: What needs it, as the start of a sentence.
    """

    def __init__(self, package: str, extra: str | None, purpose: str) -> None:
        install = package if extra is None else f'"plausiflow[{extra}]"'
        super().__init__(
            f"{purpose} needs the package `{package}`, which is not installed. "
            f"Install it with: pip install {install}"
        )
