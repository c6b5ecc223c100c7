"""Jobs of the worker thread: predictions and explanations of many rows at once, and maps.

A request becomes one job or more. Jobs with the same key run together: their rows widen the same columns (see
:mod:`plausiflow.service.rows`) and have the same options; targets and locked features may differ.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from plausiflow.constraints import Decreasing, Increasing, Range, Rule
from plausiflow.explanations import Explanations, json_parts, json_value
from plausiflow.service.decision_map import draw_map
from plausiflow.service.errors import RequestError, format_value, format_values
from plausiflow.service.rows import JsonRow
from plausiflow.service.schemas import (
    ExplainParameters,
    ExplainRequest,
    LetterRequest,
    MapRequest,
    PredictRequest,
    parse_bounds,
)
from plausiflow.service.served_model import ServedModel

RunJobs: TypeAlias = "Callable[[Sequence[Job], float], list[JobResult]]"


@dataclass(frozen=True)
class JobResult:
    """The result of one job."""

    texts: list[str]  # JSON of each row, or of the map
    statuses: list[str]  # status of each explained row
    batch_rows: int  # number of rows that ran together, including those of other clients
    evaluated: bool = True  # whether the model could be asked about a row


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """Some rows of one request, or a map. Jobs with the same ``key`` run together.

    ``run`` returns the results of jobs with the same key, in about the given number of seconds.
    """

    run: RunJobs
    key: Hashable
    served: ServedModel
    request: Any  # body of the request
    positions: tuple[int, ...] = (0,)  # positions of the rows in the request
    rows: tuple[JsonRow, ...] = ()
    targets: str | tuple[Any, ...] = ()  # the name of a policy, or the target of each row
    if_late: RunJobs | None = None  # runs instead of ``run`` after the time limit
    is_prediction: bool = False  # whether it only needs predictions, which do not wait behind searches

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.positions)


def predict_jobs(served: ServedModel, request: PredictRequest) -> list[Job]:
    """Return the jobs of ``:predict``."""
    return [replace(job, is_prediction=True) for job in _split_rows(run_predict, served, request)]


def explain_jobs(served: ServedModel, request: ExplainRequest) -> list[Job]:
    """Return the jobs of ``:explain``."""
    targets = _parse_targets(served, request.target, len(request.instances))
    options = request.parameters.model_dump_json(exclude={"locked"})
    jobs = _split_rows(run_explain, served, request, targets, options)
    return [replace(job, if_late=run_unreached) for job in jobs]


def late_job(job: Job) -> Job:
    """Return the job that answers instead of one whose time is over."""
    assert job.if_late is not None
    return replace(job, run=job.if_late, key=("late", job.key), if_late=None, is_prediction=True)


def map_jobs(served: ServedModel, request: MapRequest) -> list[Job]:
    """Return the job of ``:map``, which runs alone."""
    targets = (parse_one_target(served, request.target),)
    return [Job(run=run_map, key=id(request), served=served, request=request, targets=targets)]


def letter_jobs(served: ServedModel, request: LetterRequest) -> list[Job]:
    """Return the job of ``:letter``, which runs alone."""
    targets, rows = (parse_one_target(served, request.target),), served.reader.read([request.instance])
    key = id(request)
    return [Job(run=run_letter, key=key, served=served, request=request, rows=tuple(rows), targets=targets)]


def parse_one_target(served: ServedModel, target: object) -> Any:  # noqa: ANN401
    """Return a label of the model or an interval; not the name of a policy."""
    targets = _parse_targets(served, target, 1)
    if isinstance(targets, str):
        raise _target_error(served, targets)
    return targets[0]


def _split_rows(
    run: RunJobs,
    served: ServedModel,
    request: PredictRequest,
    targets: str | tuple[Any, ...] = (),
    options: str = "",
) -> list[Job]:
    """Return one job for each set of rows that widen the same columns."""
    rows = served.reader.read(request.instances)
    groups: dict[Any, list[int]] = {}
    for position, row in enumerate(rows):
        groups.setdefault(row.widened, []).append(position)
    policy = targets if isinstance(targets, str) else None
    return [
        Job(
            run=run,
            key=(run, served.name, widened, policy, options),
            served=served,
            request=request,
            positions=tuple(positions),
            rows=tuple(rows[i] for i in positions),
            targets=targets if policy or not targets else tuple(targets[i] for i in positions),
        )
        for widened, positions in groups.items()
    ]


def _parse_targets(served: ServedModel, target: object, n: int) -> str | tuple[Any, ...]:
    """Return the name of a policy, or the target of each of ``n`` rows."""
    if isinstance(target, str) and target in served.policies:
        return target
    has_pair = isinstance(target, list) and any(isinstance(pair, list) for pair in target)
    targets = target if isinstance(target, list) and (served.labels or has_pair) else [target] * n
    if len(targets) != n:
        text = f"`target` must be one target, or one for each of the {n} rows; got {format_value(target)}."
        raise RequestError(422, text)
    parse = _parse_label if served.labels else _parse_interval
    return tuple(parse(served, one) for one in targets)


def _parse_label(served: ServedModel, target: object) -> Any:  # noqa: ANN401
    """Return a label of the model; one that is not text may be sent as text."""
    values = [(label, json_value(label)) for label in served.labels]
    for label, value in values:
        if target == value and isinstance(target, bool) == isinstance(value, bool):
            return label
    as_text = [label for label, value in values if isinstance(target, str) and str(value) == target]
    if len(as_text) != 1:
        raise _target_error(served, target)
    return as_text[0]


def _parse_interval(served: ServedModel, target: object) -> tuple[float | None, float | None]:
    try:
        return parse_bounds(target, as_target=True)
    except ValueError as error:
        raise RequestError(422, f"`target` {error}.") from None


def _target_error(served: ServedModel, target: object) -> RequestError:
    outcomes = format_values(json_value(label) for label in served.labels)
    return RequestError(422, f"`target` must be one of the outcomes {outcomes}; got {format_value(target)}.")


def run_predict(jobs: Sequence[Job], seconds: float) -> list[JobResult]:
    """Return outcomes and probabilities, or numbers; null and the problem for an unreadable row."""
    served, frame = jobs[0].served, _make_frame(jobs)
    problems = served.encoder.encode(frame).problems.tolist()
    explainer = served.explainer
    decided = explainer.predict(frame)
    outputs = explainer.predict_proba(frame) if served.labels else decided
    triples = zip(outputs.to_numpy(), decided, problems, strict=True)
    texts = [json.dumps(_prediction(served, *own), allow_nan=False) for own in triples]
    return _share(jobs, texts, [], evaluated=None in problems)


def _prediction(
    served: ServedModel,
    output: Any,  # noqa: ANN401
    decided: Any,  # noqa: ANN401
    problem: str | None,
) -> dict[str, Any]:
    unknown, labels = bool(np.any(pd.isna(output))), [json_value(label) for label in served.labels]
    if unknown and problem is None:
        problem = f"the model returns no {'probabilities' if labels else 'prediction'} for this row"
    if not labels:
        return {"value": json_value(output), "problem": problem}
    probabilities = {str(label): float(value) for label, value in zip(labels, output, strict=True)}
    return {
        "outcome": None if unknown else json_value(decided),
        "probabilities": None if unknown else probabilities,
        "problem": problem,
    }


def run_explain(jobs: Sequence[Job], seconds: float) -> list[JobResult]:
    """Return the JSON that the library writes for each row."""
    return _explain(jobs, seconds)


def run_unreached(jobs: Sequence[Job], seconds: float) -> list[JobResult]:
    """Return the JSON of rows that are not searched: the model's prediction, and why there is no answer."""
    return _explain(jobs, 0.0)


def run_letter(jobs: Sequence[Job], seconds: float) -> list[JobResult]:
    """Return the letter about the only job's row, as JSON."""
    (job,) = jobs
    request, frame = job.request, _make_frame(jobs)
    result = _search(jobs, frame.set_axis([request.reference], axis=0), seconds)
    letter = result.letter(0, language=request.language, format=request.format)
    return [JobResult([json.dumps({"letter": letter})], [], 1)]


def _explain(jobs: Sequence[Job], seconds: float) -> list[JobResult]:
    start, parameters = time.monotonic(), jobs[0].request.parameters
    result = _search(jobs, _make_frame(jobs), seconds)
    if parameters.certify is not None and seconds > 0:
        result = _proven(result, parameters.certify, seconds - (time.monotonic() - start))
    _, *rows, _ = json_parts(result)
    statuses = result.verdicts["status"].tolist()
    evaluated = any(status != "invalid_input" for status in statuses)
    return _share(jobs, [row.removeprefix(", ") for row in rows], statuses, evaluated)


def _search(jobs: Sequence[Job], frame: pd.DataFrame, seconds: float) -> Explanations:
    """Explain the rows of all jobs."""
    parameters, policy = jobs[0].request.parameters, jobs[0].targets
    locked = [sorted(set(job.request.parameters.locked)) for job in jobs for _ in job.rows]
    return jobs[0].served.explainer.explain(
        frame,
        policy if isinstance(policy, str) else [target for job in jobs for target in job.targets],
        min_probability=parameters.min_probability,
        k=parameters.k,
        locked=locked if any(locked) else None,
        time_limit=seconds,
        relaxed=parameters.relaxed,
        constraints=_rules(parameters),
        second_opinion=parameters.confidence is not None,
        diagnose=parameters.diagnose,
    )


def _rules(parameters: ExplainParameters) -> list[Rule]:
    """Return the rules that a request adds."""
    ranges = [(name, bounds) for name, bounds in sorted(parameters.ranges.items()) if bounds != (None, None)]
    return [
        *(Range(name, *bounds) for name, bounds in ranges),
        *(Increasing(name) for name in sorted(set(parameters.increasing))),
        *(Decreasing(name) for name in sorted(set(parameters.decreasing))),
    ]


def _proven(result: Explanations, seconds: float, left: float) -> Explanations:
    """Return the result with proofs, each within some seconds and all together in the time that is left."""
    share = left / max(1, len(result))
    return result.certify(min(seconds, share)) if share > 0 else result


def run_map(jobs: Sequence[Job], seconds: float) -> list[JobResult]:
    """Return the JSON of the only job's map."""
    (job,) = jobs
    drawn = draw_map(job.served, job.request, job.targets[0])
    return [JobResult([json.dumps(json_value(drawn), allow_nan=False)], [], 1)]


def _make_frame(jobs: Sequence[Job]) -> pd.DataFrame:
    """Return the rows of all jobs; the label of a row is its position in its request."""
    rows = [row for job in jobs for row in job.rows]
    return jobs[0].served.reader.frame(rows, [position for job in jobs for position in job.positions])


def _share(jobs: Sequence[Job], texts: list[str], statuses: list[str], evaluated: bool) -> list[JobResult]:
    """Return each job's part of the results of all rows."""
    results, start = [], 0
    for job in jobs:
        part = slice(start, start + job.size)
        results.append(JobResult(texts[part], statuses[part], len(texts), evaluated))
        start += job.size
    return results
