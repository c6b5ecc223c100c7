"""``plausiflow benchmark batch``: batch runs, their throughput, memory and cost."""
