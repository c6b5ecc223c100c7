"""From the JSON that clients send to the work that is done for them.

A question that cannot be answered is refused with 422, too many rows with 413; the sentence names what is
wrong. A row whose cells the model cannot use is no reason to refuse anything: it gets a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plausiflow.explanations import json_value
from plausiflow.search import MOST_ANSWERS
from plausiflow.service.instances import MOST_PROBLEMS, Instance
from plausiflow.service.models import Served
from plausiflow.service.refusals import Refusal, like, shown, unusable
from plausiflow.service.settings import ServiceSettings
from plausiflow.service.work import Drawing, Explaining, Options, Predicting, Work
from plausiflow.validation import number

PARAMETERS = ("locked", "ranges", "k", "confidence", "min_probability", "relaxed")
MAP_CELLS = 40


def predicting(served: Served, body: object, settings: ServiceSettings) -> list[Work]:
    """The work of ``:predict``."""
    given = _fields(body, "the body", needed=("instances",))
    rows = _instances(served, given["instances"], settings)
    return [
        Predicting(served=served, instances=tuple(rows[i] for i in places), positions=places)
        for places in _alike(rows)
    ]


def explaining(served: Served, body: object, settings: ServiceSettings) -> list[Work]:
    """The work of ``:explain``."""
    given = _fields(body, "the body", needed=("instances",), optional=("target", "parameters"))
    rows = _instances(served, given["instances"], settings)
    policy, targets = _targets(served, given.get("target", "opposite"), len(rows))
    options, locked = _options(served, given.get("parameters", {}), policy)
    return [
        Explaining(
            served=served,
            instances=tuple(rows[i] for i in places),
            positions=places,
            options=options,
            targets=tuple(targets[i] for i in places) if targets else (),
            locked=locked,
        )
        for places in _alike(rows)
    ]


def drawing(served: Served, body: object, settings: ServiceSettings) -> list[Work]:
    """The work of ``:map``."""
    optional = ("points", "horizontal", "vertical", "size")
    given = _fields(body, "the body", needed=("instance", "target"), optional=optional)
    points, cells = given.get("points", []), given.get("size", MAP_CELLS)
    if not isinstance(points, list) or len(points) > settings.max_rows:
        raise unusable(f"`points` must be a list of at most {settings.max_rows} rows; got {shown(points)}.")
    if not _is_whole(cells, 2, settings.max_map):
        raise unusable(f"`size` must be a whole number from 2 to {settings.max_map}; got {shown(cells)}.")
    served.reader.read([given["instance"]], "instance")
    served.reader.read(points, "points")
    policy, targets = _targets(served, given["target"], 1)
    if policy is not None:
        raise unusable(f"`target` must be {_outcomes(served)}; got {shown(policy)}.")
    axes = [_axis(served, name, given.get(name)) for name in ("horizontal", "vertical")]
    return [
        Drawing(
            served=served,
            instance=given["instance"],
            target=targets[0],
            points=points,
            horizontal=axes[0],
            vertical=axes[1],
            cells=int(cells),
        )
    ]


def _fields(
    body: object, what: str, needed: Sequence[str] = (), optional: Sequence[str] = ()
) -> Mapping[str, Any]:
    """An object, with all that is needed and nothing that is not known."""
    names = (*needed, *optional)
    if not isinstance(body, dict):
        listed = ", ".join(map(shown, names))
        raise unusable(f"{what.capitalize()} must be an object with {listed}; got {shown(body)}.")
    problems = [f"{shown(name)} is missing" for name in needed if name not in body]
    unknown = [name for name in body if name not in names]
    problems += [f"{shown(name)} is not known{like(name, names)}" for name in unknown[:MOST_PROBLEMS]]
    if problems:
        listed = ", ".join(map(shown, names))
        raise unusable(f"{what.capitalize()} may have {listed}: {'; '.join(problems)}.")
    return body


def _instances(served: Served, given: object, settings: ServiceSettings) -> list[Instance]:
    if not isinstance(given, list) or not given:
        raise unusable(f"`instances` must be a list of one row or more; got {shown(given)}.")
    if len(given) > settings.max_rows:
        raise Refusal(
            413,
            f"A request may have {settings.max_rows} rows; got {len(given)}. Send them in several requests.",
        )
    return served.reader.read(given)


def _alike(rows: Sequence[Instance]) -> list[tuple[int, ...]]:
    """Positions of rows that widen the same columns, and so may share a table."""
    places: dict[Any, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.wider, []).append(place)
    return [tuple(own) for own in places.values()]


def _targets(served: Served, target: object, n: int) -> tuple[str | None, list[Any]]:
    """The policy, or what is wanted of each of ``n`` rows."""
    if not served.labels:
        return None, _bounds(served, target, n)
    if isinstance(target, str) and target in served.policies:
        return target, []
    wanted = target if isinstance(target, list) else [target] * n
    if len(wanted) != n:
        raise unusable(f"`target` must be one outcome, or one for each of the {n} rows; got {shown(target)}.")
    return None, [_label(served, label) for label in wanted]


def _label(served: Served, given: object) -> Any:  # noqa: ANN401
    """The model's own label; one that is no text may be spelt as text."""
    for label in served.labels:
        plain = json_value(label)
        if given == plain and isinstance(given, bool) == isinstance(plain, bool):
            return label
    spelt = [label for label in served.labels if isinstance(given, str) and str(json_value(label)) == given]
    if len(spelt) == 1:
        return spelt[0]
    raise unusable(f"`target` must be {_outcomes(served)}; got {shown(given)}.")


def _outcomes(served: Served) -> str:
    if not served.labels:
        return "the smallest and the largest number wanted, such as [100, null]"
    labels = [shown(json_value(label)) for label in served.labels]
    return f"one of the outcomes {', '.join(labels[:20])}{' and more' if len(labels) > 20 else ''}"


def _bounds(served: Served, target: object, n: int) -> list[tuple[float | None, float | None]]:
    each = isinstance(target, list) and any(isinstance(pair, list) for pair in target)
    pairs: list[Any] = target if isinstance(target, list) and each else [target] * n
    if len(pairs) != n or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        expected = f"{_outcomes(served)}, or such a pair for each of the {n} rows"
        raise unusable(f"`target` must be {expected}; got {shown(target)}.")
    return [_pair("`target`", pair, needed=True) for pair in pairs]


def _pair(what: str, pair: Sequence[object], *, needed: bool) -> tuple[float | None, float | None]:
    """A smallest and a largest number; null where there is none."""
    lo, hi = (None if bound is None else number(bound) for bound in pair)
    finite = all(bound is None or abs(bound) < float("inf") for bound in (lo, hi))
    ascending = lo is None or hi is None or lo < hi or (lo == hi and not needed)
    if not finite or not ascending or (needed and lo is None and hi is None):
        raise unusable(
            f"{what} must be a smallest and a larger number, null where there is no bound; got "
            f"{shown(pair[0])} and {shown(pair[1])}."
        )
    return _plain(lo), _plain(hi)


def _plain(bound: float | None) -> float | None:
    """A whole number without a point, as rules are written."""
    return int(bound) if bound is not None and bound.is_integer() and abs(bound) < 2**53 else bound


def _options(served: Served, given: object, policy: str | None) -> tuple[Options, tuple[str, ...]]:
    """The options of a request, and the features that its rows keep."""
    parameters = _fields(given, "`parameters`", optional=PARAMETERS)
    own = served.explainer.confidence
    confidence, relaxed = parameters.get("confidence", own), parameters.get("relaxed", False)
    k, least = parameters.get("k", 1), parameters.get("min_probability")
    expected = (
        "null" if own is None else f"{own:g}, as the explainer was fitted, or null for no second opinion"
    )
    fine: dict[str, tuple[str, Callable[[], bool]]] = {
        "k": (f"a whole number from 1 to {MOST_ANSWERS}", lambda: _is_whole(k, 1, MOST_ANSWERS)),
        "relaxed": ("true or false", lambda: isinstance(relaxed, bool)),
        "confidence": (expected, lambda: confidence is None or number(confidence) == own),
        "min_probability": (
            "a number between 0 and 1, or null, and null where a number is predicted",
            lambda: least is None or (0 < number(least) < 1 and bool(served.labels)),
        ),
    }
    wrong = [
        f"`{name}` must be {what}; got {shown(parameters[name])}"
        for name, (what, is_so) in fine.items()
        if name in parameters and not is_so()
    ]
    if wrong:
        raise unusable("; ".join(wrong) + ".")
    options = Options(
        policy=policy,
        k=int(k),
        min_probability=None if least is None else float(least),
        relaxed=relaxed,
        second_opinion=confidence is not None,
        ranges=_ranges(served, parameters.get("ranges", {})),
    )
    return options, _locked(served, parameters.get("locked", []))


def _is_whole(value: object, smallest: int, largest: int) -> bool:
    """A whole number between these, also one that is written as 3.0: JSON has only one kind of number."""
    return smallest <= number(value) <= largest and number(value).is_integer()


def _locked(served: Served, given: object) -> tuple[str, ...]:
    if not isinstance(given, list):
        raise unusable(f"`locked` must be a list of names of features; got {shown(given)}.")
    for name in given:
        if not isinstance(name, str) or name not in served.schema.names:
            hint = like(name, served.schema.names) if isinstance(name, str) else ""
            raise unusable(f"`locked` must hold names of features; there is no {shown(name)}{hint}.")
    return tuple(sorted(set(given)))


def _ranges(served: Served, given: object) -> tuple[tuple[str, float | None, float | None], ...]:
    if not isinstance(given, dict):
        raise unusable(f"`ranges` must be an object from names to pairs of numbers; got {shown(given)}.")
    numbers = [feature.name for feature in served.schema.features if feature.is_number]
    ranges = []
    for name, pair in sorted(given.items()):
        if name not in numbers:
            raise unusable(f"`ranges` must name numbers; {shown(name)} is none{like(name, numbers)}.")
        if not isinstance(pair, list) or len(pair) != 2:
            raise unusable(f"`ranges` must hold pairs, such as [0, null]; {shown(name)} has {shown(pair)}.")
        bounds = _pair(f"The range of {shown(name)}", pair, needed=False)
        if bounds != (None, None):
            ranges.append((name, *bounds))
    return tuple(ranges)


def _axis(served: Served, side: str, name: object) -> str | None:
    if name is None or (isinstance(name, str) and name in served.schema.names):
        return name
    hint = like(name, served.schema.names) if isinstance(name, str) else ""
    raise unusable(f"`{side}` must be the name of a feature, or null; got {shown(name)}{hint}.")
