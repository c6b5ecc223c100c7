"""The service: saved explainers over HTTP, in the words of KServe's version 1, and the what-if page.

What it does stands in plain modules: :mod:`~plausiflow.service.bodies` and
:mod:`~plausiflow.service.instances` read what clients send, :mod:`~plausiflow.service.asking` turns it into
work, :mod:`~plausiflow.service.batching` does the work of many clients together, in one thread. Only
:mod:`~plausiflow.service.app` knows the web framework, and only :mod:`~plausiflow.service.server` the server.
"""

from plausiflow.service.settings import ServiceSettings

__all__ = ["ServiceSettings"]
