"""``plausiflow benchmark speed``: rows per second, latency, scaling and memory of the search."""
