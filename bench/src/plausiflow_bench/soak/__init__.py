"""The soak: bad clients, kills, damaged files and odd tables, for a bounded time."""
