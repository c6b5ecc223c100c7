"""Actions in words."""

from __future__ import annotations

import math

from plausiflow.explanations import FeatureFormatter, format_value, join_words
from plausiflow.groups.actions import FORMS, Actions
from plausiflow.tables import Block, Encoder


def describe_action(actions: Actions, i: int, encoder: Encoder) -> str:
    """Return what an action changes, such as "income + 3,000 and job: clerk"."""
    form = FORMS[int(actions.form[i])]
    layout, with_levels = actions.layout, list(actions.layout.with_levels)
    texts = []
    for j in actions.features[i].nonzero()[:, 0].tolist():
        block = layout.blocks[j]
        place = with_levels.index(block) if len(block.levels) else 0
        code = int(actions.codes[i, place]) if len(block.levels) else -1
        if code >= 0 and (block.number is None or code > 0):
            level = format_value(encoder.level_names(block.name)[code])
            bound = {1: " at least ", -1: " at most ", 0: ": "}[int(actions.rises[i, place])]
            texts.append(f"{block.name}{bound}{level}")
        elif block.number is not None:
            entered = code == 0
            texts.append(_number_text(actions, i, block, "set" if entered else form, encoder))
    ending = ", in these proportions" if form == "direction" and len(texts) > 1 else ""
    ending = ending or (", by as much as each row needs" if form == "direction" else "")
    return join_words(texts) + ending


def _number_text(actions: Actions, i: int, block: Block, form: str, encoder: Encoder) -> str:
    assert block.scale is not None
    number = block.number
    move, value = float(actions.moves[i, number]), actions.values[i, number]
    formatter = FeatureFormatter(encoder.schema.feature(block.name))
    _, span = block.scale.ends
    if form == "set":
        return f"{block.name}: {formatter.format_number(float(block.scale.decode(value)))}"
    if form == "reach":
        bound = "at least" if move > 0 else "at most"
        return f"{block.name} {bound} {formatter.format_number(float(block.scale.decode(value)))}"
    sign = "+" if move > 0 else "−"
    if block.scale.log:
        # Equal steps on a logarithmic scale multiply large numbers by a factor.
        return f"{block.name} {sign} about {_percent(abs(math.expm1(move * span)))}"
    return f"{block.name} {sign} {formatter.format_number(abs(move) * span)}"


def _percent(share: float) -> str:
    """Return a share in percent, with two digits that count.

    Example:
        >>> _percent(0.0042), _percent(0.034), _percent(1.5)
        ('0.42%', '3.4%', '150%')
    """
    digits = 0 if share == 0 else max(0, 1 - math.floor(math.log10(100 * share)))
    return f"{100 * share:.{digits}f}%"
