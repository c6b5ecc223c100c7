"""The service: saved explainers over HTTP, as KServe's version 1 describes it, and the what-if page.

:mod:`~plausiflow.service.bodies` and :mod:`~plausiflow.service.instances` read what clients send,
:mod:`~plausiflow.service.asking` turns it into work, and :mod:`~plausiflow.service.batching` does the work of
many clients together, in one thread. Only :mod:`~plausiflow.service.app` imports the web framework, and only
:mod:`~plausiflow.service.server` the server: ``serve`` is imported when it is first used, because it needs
the extra ``serve``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from plausiflow.service.settings import ServiceSettings

if TYPE_CHECKING:
    from plausiflow.service.server import check_reach, serve

__all__ = ["ServiceSettings", "check_reach", "serve"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import ``serve`` and ``check_reach`` when they are first used."""
    if name in ("check_reach", "serve"):
        return getattr(import_module("plausiflow.service.server"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
