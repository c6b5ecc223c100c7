"""Schemas of requests and responses, from which FastAPI validates bodies and writes the OpenAPI document.

The requests to each model have their own schemas, because their rows have the features of its table. A row
may have any values: a value that the model cannot use gives the row a verdict, not the request an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
    model_validator,
)

from plausiflow.exact import is_installed
from plausiflow.explanations import json_value
from plausiflow.letters import FORMATS, LANGUAGES
from plausiflow.search import MOST_ANSWERS
from plausiflow.service.errors import RequestError, format_value, format_values, suggest
from plausiflow.service.served_model import ServedModel
from plausiflow.service.settings import ServiceSettings
from plausiflow.validation import to_float

MAX_PROBLEMS = 5
MAP_SIZE = 40
MOST_REFERENCE = 100
"""Characters of the reference of a letter."""
MOST_PROOF_SECONDS = 10.0
"""Seconds that a request may give to the proof of a row."""
PAIR = {"type": "array", "items": {"type": ["number", "null"]}, "minItems": 2, "maxItems": 2}


def _check_cell(value: object) -> object:
    if isinstance(value, list | dict):
        raise ValueError("must be text, a number, true, false or null")
    return value


def one_of(values: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return the type of some JSON values; unlike in Python, true is not 1."""

    def check(value: object) -> object:
        for known in values:
            if value == known and isinstance(value, bool) == isinstance(known, bool):
                return known
        expected, hint = format_values(values), suggest(value, values)
        raise ValueError(f"must be one of {expected}; got {format_value(value)}{hint}")

    return Annotated[Any, AfterValidator(check), WithJsonSchema({"enum": list(values)})]


def whole_number(smallest: int, largest: int) -> Any:  # noqa: ANN401
    """Return the type of whole numbers in a range; 3.0 is one, because JSON has one type of numbers."""

    def check(value: object) -> int:
        if smallest <= to_float(value) <= largest and to_float(value).is_integer():
            return int(to_float(value))
        raise ValueError(f"must be a whole number from {smallest} to {largest}")

    schema = {"type": "integer", "minimum": smallest, "maximum": largest}
    return Annotated[Any, AfterValidator(check), WithJsonSchema(schema)]


def parse_bounds(pair: object, *, as_target: bool = False) -> tuple[float | None, float | None]:
    """Return a lower and an upper bound, None for no bound; whole numbers as integers.

    With ``as_target``, one of the bounds must be given, and both must differ.
    """
    if not isinstance(pair, list) or len(pair) != 2:
        raise ValueError("must be a pair of numbers such as [100, null]")
    low, high = (None if bound is None else to_float(bound) for bound in pair)
    finite = all(bound is None or abs(bound) < float("inf") for bound in (low, high))
    ascending = low is None or high is None or low < high or (low == high and not as_target)
    if not finite or not ascending or (as_target and low is None and high is None):
        came = f"{format_value(pair[0])} and {format_value(pair[1])}"
        raise ValueError(f"must be a pair of ascending numbers, null for no bound; got {came}")
    low, high = (int(b) if b is not None and b.is_integer() and abs(b) < 2**53 else b for b in (low, high))
    return low, high


class Body(BaseModel):
    """A JSON object without unknown names, and without conversions such as text to number."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _suggest_names(cls, value: Any) -> Any:  # noqa: ANN401
        known = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = sorted(value.keys() - set(known)) if isinstance(value, dict) else []
        if unknown:
            hints = "".join(suggest(name, known) for name in unknown[:MAX_PROBLEMS])
            raise ValueError(f"has unknown names: {format_values(unknown, MAX_PROBLEMS)}{hints}")
        return value


class PredictRequest(Body):
    """Rows to predict."""

    instances: list[Any]


class ExplainParameters(Body):
    """Options of an explanation."""

    locked: list[str] = []
    ranges: dict[str, Any] = {}
    increasing: list[str] = []
    decreasing: list[str] = []
    k: int = 1
    confidence: float | None = None
    relaxed: bool = False
    diagnose: bool = True
    min_probability: float | None = None
    certify: float | None = None


class ExplainRequest(PredictRequest):
    """Rows to explain."""

    target: Any
    parameters: ExplainParameters


class LetterRequest(Body):
    """A row for a letter about it, with the options of its explanation."""

    instance: Any
    target: Any
    parameters: ExplainParameters
    language: str = "en"
    format: str = "text"
    reference: str = "–"


class PopulationRequest(Body):
    """An outcome, for what rows with it are like."""

    target: Any


class MapRequest(Body):
    """A row and further points to draw on a map."""

    instance: Any
    target: Any
    points: list[Any] = []
    horizontal: str | None = None
    vertical: str | None = None
    size: int = MAP_SIZE

    @model_validator(mode="after")
    def _check_axes(self) -> Self:
        missing = [self.horizontal, self.vertical].count(None)
        if missing == 1 or (missing == 0 and self.horizontal == self.vertical):
            raise ValueError("must name two different features as `horizontal` and `vertical`, or neither")
        return self


class WhatIfRequest(Body):
    """A row, values that it would have, and features to keep."""

    instance: Any
    changes: dict[str, Any] = {}
    locked: list[str] = []
    target: Any


def _schema(name: str, base: type[BaseModel] = Body, /, **fields: Any) -> Any:  # noqa: ANN401
    """Return the schema of an object whose names are all required."""
    required: dict[str, Any] = {key: (kind, ...) for key, kind in fields.items()}
    return create_model(name, __base__=base, **required)


Cell: Any = Annotated[
    Any, AfterValidator(_check_cell), WithJsonSchema({"type": ["string", "number", "boolean", "null"]})
]
Number: Any = float | None
Row, Grid, List = dict[str, Cell], list[list[Number]], list.__class_getitem__

_Text = Annotated[str, Field(min_length=1)]
ErrorBody = _schema("Error", error=_Text, code=_Text)
StatusBody = _schema("Status", status=Literal["alive", "ready"])
ModelNames = _schema("Models", models=list[str])
ServerLive, ServerReady = _schema("ServerLive", live=bool), _schema("ServerReady", live=bool, ready=bool)
ModelReady = _schema("ModelReady", name=str, ready=bool)
ServerMetadata = _schema("ServerMetadata", name=str, version=str, extensions=list[str])
_Tensor = _schema("TensorMetadata", name=str, datatype=str, shape=list[int])
ModelMetadata = _schema("ModelMetadata", name=str, platform=str, inputs=List(_Tensor), outputs=List(_Tensor))
_Probabilities = dict[str, Annotated[float, Field(ge=0, le=1 + 1e-6)]] | None
_Class = _schema("ClassPrediction", outcome=Cell, probabilities=_Probabilities, problem=str | None)
_Value = _schema("NumberPrediction", value=Number, problem=str | None)
_Role = Literal["needed", "accompanying", ""]
_Change = _schema("Change", feature=str, **{"from": Cell}, to=Cell, role=_Role, serves=str, adverse=bool)
_Counterfactual = _schema(
    "Counterfactual",
    values=Row,
    changes=List(_Change),
    distance=Literal["l2", "l1", "l1-mad"],
    **dict.fromkeys(("cost", "probability", "score", "judged"), Number),
    sentence=str,
    advantages=list[str],
)
# Only with `durability`: the share of retrained models that still decide so.
_Counterfactual = create_model("Counterfactual", __base__=_Counterfactual, lasting=(Number, None))
_Verdict = _schema(
    "Verdict",
    row=Annotated[int, Field(ge=0)],
    status=Literal["found", "already", "relaxed", "infeasible", "not_reached", "invalid_input"],
    reason=str,
    predicted=Cell,
    target=Cell,
    probability=Number,
    sentence=str,
    factual=Row,
    counterfactuals=List(_Counterfactual),
    misses=List(_schema("NearestMiss", values=Row, why=str)),
)
_Explanation: Any = create_model(
    "Explanation",
    __base__=_Verdict,
    bound=(Number, Field(None, description="With `certify`: no allowed row costs less.")),
    bound_status=(str, ""),
    relax=(list[str], []),
    proof=(str, Field("", description="What is proven, in words.")),
)
ExplainResponse = _schema("Explanations", explanations=List(_Explanation))
# A map also has the grid `lead`, and `probability` or `prediction`.
_Kind, _Axis = Literal["features", "projection"], dict[str, Any]
MapResponse = _schema("Map", BaseModel, kind=_Kind, horizontal=_Axis, vertical=_Axis, score=Grid, points=Grid)
_Share: Any = Annotated[float, Field(ge=0, le=1)] | None
_Histogram: Any = _schema("Histogram", shares=List(_Share))
# A number has `edges`, one more than shares; a category has `levels`.
_Histogram = create_model("Histogram", __base__=_Histogram, edges=(Any, None), levels=(Any, None))
LetterResponse = _schema("Letter", letter=str)
PopulationResponse = _schema("Population", outcome=Any, features=dict[str, _Histogram])


@dataclass(frozen=True)
class ModelSchemas:
    """Schemas of the requests to one model, and of the responses that depend on the model."""

    predict: type[PredictRequest]
    explain: type[ExplainRequest]
    map: type[MapRequest]
    population: type[PopulationRequest]
    letter: type[LetterRequest]
    what_if: type[WhatIfRequest]
    predictions: type[Body]
    examples: type[Body]


def build_schemas(served: ServedModel, settings: ServiceSettings) -> ModelSchemas:
    """Return the schemas of one model."""
    name, row, labels = served.name, _row_schema(served), [json_value(label) for label in served.labels]
    sent = Annotated[row, AfterValidator(lambda row: row.model_dump(by_alias=True))]  # type: ignore[valid-type]
    instances: Any = (List(sent), Field(min_length=1, max_length=settings.max_rows))
    names = [feature.name for feature in served.schema.features if feature.is_number or feature.has_levels]
    target, parameters = _target_type([*served.policies, *labels]), _parameter_schema(served)
    explain: dict[str, Any] = {
        "instances": instances,
        "target": (target, "opposite" if labels else ...),
        "parameters": (parameters, Field(default_factory=parameters)),
    }
    letter: dict[str, Any] = {
        "instance": (sent, ...),
        "target": (_target_type(labels), ...),
        "parameters": explain["parameters"],
        "language": (one_of(LANGUAGES), LANGUAGES[0]),
        "format": (one_of(tuple(FORMATS)), "text"),
        "reference": (Annotated[str, Field(min_length=1, max_length=MOST_REFERENCE)], "–"),
    }
    drawn: dict[str, Any] = {
        "instance": (sent, ...),
        "target": (_target_type(labels), ...),
        "points": (List(sent), Field([], max_length=settings.max_rows)),
        **dict.fromkeys(("horizontal", "vertical"), (one_of([*names, None]), None)),
        "size": (whole_number(2, settings.max_map), MAP_SIZE),
    }
    what_if: dict[str, Any] = {
        "instance": (sent, ...),
        "changes": (_changes_type(served), Field({}, description="New values of some features.")),
        "locked": (List(one_of(served.schema.names)), Field([], description="Features to keep.")),
        "target": explain["target"],
    }
    return ModelSchemas(
        predict=create_model(f"{name}_predict", __base__=PredictRequest, instances=instances),
        explain=create_model(f"{name}_explain", __base__=ExplainRequest, **explain),
        map=create_model(f"{name}_map", __base__=MapRequest, **drawn),
        letter=create_model(f"{name}_letter", __base__=LetterRequest, **letter),
        population=create_model(
            f"{name}_population", __base__=PopulationRequest, target=(_target_type(labels), ...)
        ),
        what_if=create_model(f"{name}_what_if", __base__=WhatIfRequest, **what_if),
        predictions=_schema(f"{name}_predictions", predictions=List(_Class if labels else _Value)),
        examples=_schema(f"{name}_rows", rows=List(row)),
    )


def _row_schema(served: ServedModel) -> type[Body]:
    """Return the schema of a row; fields have aliases because names of columns need not be identifiers."""
    typical, fields = served.description["typical"], {}
    for i, feature in enumerate(served.description["features"]):
        name, kind, levels = feature["name"], feature["kind"], feature["levels"]
        text = f"{kind}: {format_values(levels)}" if levels else kind
        if feature["smallest"] is not None:
            text = f"{kind}, {feature['smallest']:g} to {feature['largest']:g} in training rows"
            text += "".join(f" or {value:g}" for value in feature["special"])
        fields[f"feature_{i}"] = (Cell, Field(alias=name, description=text, examples=[typical[name]]))
    return create_model(f"{served.name}_row", __base__=Body, **fields)  # type: ignore[call-overload, no-any-return]


def _changes_type(served: ServedModel) -> Any:  # noqa: ANN401
    """Return the type of new values of some features."""
    names = list(served.schema.names)
    schema = {
        "type": "object",
        "properties": {name: {"type": ["string", "number", "boolean", "null"]} for name in names},
        "additionalProperties": False,
    }
    return Annotated[dict.__class_getitem__((one_of(names), Cell)), WithJsonSchema(schema)]


def _target_type(outcomes: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return the type of a target; the values are parsed with the rows."""
    if not outcomes:
        text = "The smallest and the largest wanted number, or such a pair for each row."
        return Annotated[Any, WithJsonSchema(PAIR | {"description": text})]
    text = "The wanted outcome or how to select it, or a list with one for each row."
    return Annotated[Any, WithJsonSchema({"enum": list(outcomes), "description": text})]


_PROOF_SECONDS: Any = Annotated[float, Field(gt=0, le=MOST_PROOF_SECONDS)] | None


def _parameter_schema(served: ServedModel) -> type[ExplainParameters]:
    confidence, bounds = served.explainer.confidence, Annotated[Any, AfterValidator(parse_bounds)]
    numbers = [feature.name for feature in served.schema.features if feature.is_number]
    ranges = {"type": "object", "properties": dict.fromkeys(numbers, PAIR), "additionalProperties": False}
    ordered = [f.name for f in served.schema.features if f.is_number or f.kind in ("ordered", "boolean")]
    probability = Annotated[float, Field(gt=0, lt=1)] | None if served.labels else one_of([None])
    fields: dict[str, Any] = {
        "locked": (List(one_of(served.schema.names)), Field([], description="Features to keep.")),
        "ranges": (Annotated[dict.__class_getitem__((one_of(numbers), bounds)), WithJsonSchema(ranges)], {}),
        "increasing": (List(one_of(ordered)), Field([], description="Features that must not fall.")),
        "decreasing": (List(one_of(ordered)), Field([], description="Features that must not rise.")),
        "k": (whole_number(1, MOST_ANSWERS), 1),
        "confidence": (one_of([None] if confidence is None else [confidence, None]), confidence),
        "min_probability": (probability, None),
        "certify": (_PROOF_SECONDS if is_installed() else one_of([None]), None),
    }
    return create_model(f"{served.name}_parameters", __base__=ExplainParameters, **fields)


def check_counterfactuals(request: ExplainRequest, limit: int) -> None:
    """Raise a RequestError if a request asks for more counterfactuals than allowed."""
    rows, k = len(request.instances), request.parameters.k
    if rows * k > limit:
        text = f"A request may ask for {limit} counterfactuals, rows × `k`; got {rows} × {k} = {rows * k}. "
        raise RequestError(413, text + "Send fewer rows at once, or a smaller `k`.")


def describe_errors(errors: Sequence[Mapping[str, Any]]) -> RequestError:
    """Return the error of a body that does not match its schema, from the errors that pydantic lists."""
    for error in errors:
        if error["type"] == "too_long" and error["loc"] == ("body", "instances"):
            limit, came = error["ctx"]["max_length"], len(error["input"])
            text = f"A request may have {limit} rows; got {came}. Send them in several requests."
            return RequestError(413, text)
    texts = [_describe_error(error) for error in errors[:MAX_PROBLEMS]]
    more = len(errors) - len(texts)
    return RequestError(422, "; ".join(texts) + (f"; and {more} more problems." if more else "."))


def _describe_error(error: Mapping[str, Any]) -> str:
    parts = [part for part in error["loc"][1:] if part != "[key]"]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    where = f"`{path[1:]}`" if path else "The body"
    if error["type"] == "missing" and path:
        return f"{where} is missing, but required"
    reason = re.sub("^(Input|List) should", "must", error["msg"]).removeprefix("Value error, ")
    if error["type"] in ("missing", "model_type", "model_attributes_type", "dict_type"):
        reason = "must be an object"
    is_complete = "; got " in reason or not reason.startswith("must")
    return f"{where} {reason}" + ("" if is_complete else f"; got {format_value(error['input'])}")
