"""Learn rules from a training table: what (practically) all of its rows have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from torch import Tensor

from plausiflow.constraints.learned import LearnedRules
from plausiflow.constraints.mined_bands import learn_bands
from plausiflow.constraints.mined_functions import learn_functions
from plausiflow.constraints.mined_numbers import NumberMiner
from plausiflow.constraints.mined_products import learn_products, products_tried
from plausiflow.constraints.mined_states import StateMiner, quoted_name
from plausiflow.constraints.problems import find_problems
from plausiflow.constraints.rule import Rule
from plausiflow.tables import Encoder, Evidence, read_numbers, rows_to_read


def learn_rules(
    frame: pd.DataFrame, x: Tensor, encoder: Encoder, given: Sequence[Rule] = (), random_state: int = 0
) -> LearnedRules:
    """Return the rules that a training table shows, without those that contradict given ones.

    Args:
        frame: Training rows.
        x: The same rows, encoded.
        encoder: Encoder of the table.
        given: Rules of the user, which come first.
        random_state: Seed of samples of rows.
    """
    some = rows_to_read(len(frame), len(encoder.layout.blocks), random_state)
    if len(some) < len(frame):
        frame, x = frame.iloc[some], x[some]
    features = {feature.name: feature for feature in encoder.schema.features}
    layout = encoder.layout
    numeric = [name for name, f in features.items() if f.is_numeric and f.kind not in ("boolean", "constant")]
    n_states = sum(len(block.levels) for block in layout.with_levels)
    evidence = Evidence(2 * n_states**2 + len(numeric) ** 3 + products_tried(len(numeric)))
    rules = (
        StateMiner(layout, features, layout.codes(x).numpy(), evidence).run() if len(layout.blocks) else []
    )
    numbers = {name: read_numbers(frame[name])[0] for name in numeric}
    if layout.with_levels:
        rules += learn_bands(layout, features, layout.codes(x).numpy(), numbers, evidence)
    values = np.stack(list(numbers.values()), axis=1) if numeric else np.zeros((0, 0))
    miner = NumberMiner(features, values, numeric, evidence, random_state)
    rules += miner.run()
    related = [frozenset(numeric[j] for j in found) for found in miner.equalities]
    # A formula can only name columns that the grammar of rules can.
    named = [j for j, name in enumerate(numeric) if quoted_name(name) is not None]
    columns = (features, values[:, named], [numeric[j] for j in named], evidence, random_state)
    rules += learn_functions(*columns)
    rules += learn_products(*columns, related)
    known = {str(rule) for rule in given}
    new = [rule for rule in rules if str(rule) not in known]
    before = set(find_problems(list(given), features))
    return LearnedRules(rule for rule in new if set(find_problems([*given, rule], features)) <= before)
