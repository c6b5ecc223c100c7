"""The service: saved explainers over HTTP with the addresses of KServe, and the what-if page.

A request passes :mod:`~plausiflow.service.app` (routes, validation by the pydantic models of
:mod:`~plausiflow.service.schemas`), becomes jobs in :mod:`~plausiflow.service.jobs`, and waits in a queue of
:mod:`~plausiflow.service.batching`, whose threads run the jobs of many clients together. ``serve`` and
``check_address`` are imported when they are first used, because they need the extra ``serve``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from plausiflow.service.settings import ServiceSettings

if TYPE_CHECKING:
    from plausiflow.service.server import check_address, serve

__all__ = ["ServiceSettings", "check_address", "serve"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import ``serve`` and ``check_address`` when they are first used."""
    if name in ("check_address", "serve"):
        return getattr(import_module("plausiflow.service.server"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
