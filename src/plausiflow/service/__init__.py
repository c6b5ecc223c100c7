"""The service: saved explainers over HTTP with the addresses of KServe, and the what-if page.

A request passes :mod:`~plausiflow.service.app` (routes, validation by the pydantic models of
:mod:`~plausiflow.service.schemas`), becomes jobs in :mod:`~plausiflow.service.jobs`, and waits in a queue of
:mod:`~plausiflow.service.batching`, whose threads run the jobs of many clients together. ``serve``,
``check_address`` and ``serve_mcp`` are imported when they are first used, because they need extras.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from plausiflow.service.settings import ServiceSettings

if TYPE_CHECKING:
    from plausiflow.service.mcp_server import serve_mcp
    from plausiflow.service.server import check_address, serve

__all__ = ["ServiceSettings", "check_address", "serve", "serve_mcp"]

_PLACES = {"check_address": "server", "serve": "server", "serve_mcp": "mcp_server"}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import what needs an extra when it is first used."""
    if name in _PLACES:
        return getattr(import_module(f"plausiflow.service.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
