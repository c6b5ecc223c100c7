"""A sentence of many changes names a few and counts the others."""

import pandas as pd
import pytest

from plausiflow.explanations.change_roles import combine_phrases


def sentence(**counts: int) -> str:
    """Return the sentence of so many changes for each purpose, named by their number."""
    serves = [purpose.rstrip("_") for purpose, count in counts.items() for _ in range(count)]
    roles = pd.DataFrame({"serves": serves, "adverse": [False] * len(serves)})
    return combine_phrases([f"f{i}" for i in range(len(serves))], roles)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"decision": 44}, "f0, f1, f2, f3, f4, f5 and 38 more"),
        ({"decision": 7}, "f0, f1, f2, f3, f4, f5 and f6"),
        ({"plausibility": 44}, "f0, f1, f2, f3, f4, f5 and 38 more"),
        ({"decision": 6, "plausibility": 38}, "f0, f1, f2, f3, f4 and f5; along with that: 38 other changes"),
        ({"decision": 2, "plausibility": 40},
         "f0 and f1; along with that, to stay plausible: f2, f3, f4, f5 and 36 more"),
        ({"decision": 4, "plausibility": 2, "certainty": 5},
         "f0, f1, f2 and f3; along with that, to stay plausible: f4 and f5; and 5 other changes"),
        ({"decision": 1, "plausibility": 1}, "f0; along with that, to stay plausible: f1"),
    ],
)  # fmt: skip
def test_a_sentence_names_about_six_changes_and_counts_the_others(counts, text):
    assert sentence(**counts) == text
