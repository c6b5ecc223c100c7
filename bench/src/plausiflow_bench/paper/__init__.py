"""``plausiflow benchmark paper``: the evaluation of the paper, with the published values beside ours."""
