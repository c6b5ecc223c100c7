"""``plausiflow benchmark serving``: the HTTP service under load."""
