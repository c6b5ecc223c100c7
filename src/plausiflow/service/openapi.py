"""The description of all addresses, as OpenAPI 3.1: what may be sent to each model, and what comes back.

It is written for the models that are served: each has addresses of its own, with the features that its rows
must have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plausiflow.explanations import json_value
from plausiflow.search import MOST_ANSWERS
from plausiflow.service.asking import MAP_CELLS
from plausiflow.service.core import Service
from plausiflow.service.models import Served
from plausiflow.service.settings import ServiceSettings

Schema = dict[str, Any]

CELL: Schema = {"type": ["string", "number", "boolean", "null"]}
TEXT: Schema = {"type": "string"}
MAYBE: Schema = {"type": ["number", "null"]}
_REASONS = {
    400: "The body is no JSON.",
    401: "The token is missing or wrong.",
    404: "There is no such address.",
    405: "The address does not take this method.",
    408: "The body did not come in time.",
    413: "Too many rows, or a body that is too large.",
    415: "The body is not said to be JSON.",
    421: "The service is called by a name that it does not answer to.",
    422: "JSON, but no question that can be answered; the error says why.",
    500: "An error inside; the log has it.",
    503: "The service is busy or ending.",
    504: "The answer took too long.",
}


def document_of(service: Service, *, needs_token: bool) -> Schema:
    """The description, as JSON can hold it."""
    paths: Schema = {
        "/healthz": {"get": _get("The process is alive.", _object({"status": {"const": "alive"}}))},
        "/readyz": {"get": _get("Questions are taken.", _object({"status": {"const": "ready"}}), 503)},
        "/metrics": {"get": _get("Counters for Prometheus.", TEXT, media="text/plain")},
        "/v1/models": {"get": _get("Names of the models.", _object({"models": _list(TEXT)}), 401)},
    }
    for served in service.models.values():
        paths |= _model_paths(served, service.settings)
    document: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": "plausiflow",
            "version": "1",
            "description": "Counterfactual explanations that could be real; KServe's version 1.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": _object({"error": {"type": "string", "minLength": 1}})}},
    }
    if needs_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in paths.items():
            for operation in operations.values() if path.startswith("/v1") else ():
                operation["security"] = [{"token": []}]
    return document


def _model_paths(served: Served, settings: ServiceSettings) -> Schema:
    at = f"/v1/models/{served.name}"
    row = _row(served)
    return {
        at: {"get": _get("What the model is, and its features.", {"type": "object"}, 401)},
        f"{at}/rows": {"get": _get("Rows to start from.", _object({"rows": _list(row)}), 401)},
        f"{at}:predict": {"post": _post("What the model says of rows.", *_predict(served, row, settings))},
        f"{at}:explain": {"post": _post("What would change it.", *_explain(served, row, settings))},
        f"{at}:map": {"post": _post("A map around a row.", *_map(served, row, settings))},
    }


def _row(served: Served) -> Schema:
    """Any value is taken: one that the model cannot use gives the row a verdict, and no error."""
    features = {
        feature["name"]: CELL
        | {"description": _told(feature), "examples": [served.described["typical"][feature["name"]]]}
        for feature in served.described["features"]
    }
    return _object(features)


def _told(feature: Mapping[str, Any]) -> str:
    """A feature in words."""
    if feature["levels"]:
        shown = ", ".join(map(str, feature["levels"][:20]))
        return f"{feature['kind']}: {shown}{' and more' if len(feature['levels']) > 20 else ''}"
    if feature["smallest"] is not None:
        return f"{feature['kind']}, {feature['smallest']:g} to {feature['largest']:g} in training rows"
    return str(feature["kind"])


def _predict(served: Served, row: Schema, settings: ServiceSettings) -> tuple[Schema, Schema]:
    sent = _object({"instances": _rows(row, settings)})
    problem = {"problem": {"type": ["string", "null"]}}
    if not served.labels:
        return sent, _object({"predictions": _list(_object({"value": MAYBE} | problem))})
    labels = [json_value(label) for label in served.labels]
    each = _object({str(label): {"type": "number", "minimum": 0, "maximum": 1 + 1e-6} for label in labels})
    found = {"outcome": {"enum": [*labels, None]}, "probabilities": {"anyOf": [each, {"type": "null"}]}}
    return sent, _object({"predictions": _list(_object(found | problem))})


def _explain(served: Served, row: Schema, settings: ServiceSettings) -> tuple[Schema, Schema]:
    needed = {"instances": _rows(row, settings)}
    target = {"target": _target(served)}
    optional = {"parameters": _parameters(served)}
    sent = _object(needed, target | optional) if served.labels else _object(needed | target, optional)
    answer = _object(
        {
            "values": row,
            "changes": _list(_object({"feature": TEXT, "from": CELL, "to": CELL})),
            **dict.fromkeys(("cost", "probability", "score", "judged"), MAYBE),
            "sentence": TEXT,
        }
    )
    statuses = ["found", "already", "relaxed", "infeasible", "not_reached", "invalid_input"]
    explanation = _object(
        {
            "row": {"type": "integer", "minimum": 0},
            "status": {"enum": statuses},
            **dict.fromkeys(("reason", "sentence"), TEXT),
            **dict.fromkeys(("predicted", "target"), CELL),
            "probability": MAYBE,
            "factual": row,
            "counterfactuals": _list(answer),
            "misses": _list(_object({"values": row, "why": TEXT})),
        }
    )
    return sent, _object({"explanations": _list(explanation)})


def _target(served: Served) -> Schema:
    """What may be wanted, the same for all rows; lists, one for each row, are told in words."""
    if not served.labels:
        return _pair("The smallest and the largest number wanted; or such a pair for each row.")
    words = [*served.policies, *(json_value(label) for label in served.labels)]
    return {
        "enum": words,
        "description": "The outcome wanted, or how to choose it; or a list, one for each row.",
    }


def _parameters(served: Served) -> Schema:
    names, own = list(served.schema.names), served.explainer.confidence
    numbers = [feature.name for feature in served.schema.features if feature.is_number]
    ranges = {name: _pair("Smallest and largest value.") for name in numbers}
    given: Schema = {
        "locked": {
            "type": "array",
            "items": {"enum": names},
            "description": "Features that keep their value.",
        },
        "ranges": _object({}, ranges),
        "k": {"type": "integer", "minimum": 1, "maximum": MOST_ANSWERS, "default": 1},
        "confidence": {"enum": [own, None] if own is not None else [None]},
        "relaxed": {"type": "boolean", "default": False},
        "min_probability": {"type": "null"},
    }
    if served.labels:
        bounds = {"exclusiveMinimum": 0, "exclusiveMaximum": 1}
        given["min_probability"] = {"type": ["number", "null"], **bounds}
    return _object({}, given)


def _map(served: Served, row: Schema, settings: ServiceSettings) -> tuple[Schema, Schema]:
    labels = [json_value(label) for label in served.labels]
    names = {"enum": [*(f.name for f in served.schema.features if f.is_number or f.has_levels), None]}
    cells = {"type": "integer", "minimum": 2, "maximum": settings.max_map, "default": MAP_CELLS}
    sent = _object(
        {"instance": row, "target": {"enum": labels} if labels else _pair("The numbers wanted.")},
        {
            "points": {"type": "array", "items": row, "maxItems": settings.max_rows},
            "horizontal": names,
            "vertical": names,
            "size": cells,
        },
    )
    grid = _list(_list(MAYBE))
    drawn = {
        "kind": {"enum": ["features", "projection"]},
        "horizontal": {"type": "object"},
        "vertical": {"type": "object"},
        "score": grid,
        "points": _list(_list(MAYBE)),
    }
    return sent, {"type": "object", "required": list(drawn), "properties": drawn}


def _rows(row: Schema, settings: ServiceSettings) -> Schema:
    return {"type": "array", "items": row, "minItems": 1, "maxItems": settings.max_rows}


def _pair(text: str) -> Schema:
    return {"type": "array", "items": MAYBE, "minItems": 2, "maxItems": 2, "description": text}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(needed: Schema, optional: Schema | None = None) -> Schema:
    properties = needed | (optional or {})
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return made | ({"required": list(needed)} if needed else {})


def _get(text: str, schema: Schema, *others: int, media: str = "application/json") -> Schema:
    return {"summary": text, "responses": _responses(schema, others, media)}


def _post(text: str, sent: Schema, answered: Schema) -> Schema:
    statuses = (400, 401, 408, 413, 415, 422, 500, 503, 504)
    return {
        "summary": text,
        "requestBody": {"required": True, "content": {"application/json": {"schema": sent}}},
        "responses": _responses(answered, statuses, "application/json"),
    }


def _responses(schema: Schema, others: tuple[int, ...], media: str) -> Schema:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    good = {"200": {"description": "The answer.", "content": {media: {"schema": schema}}}}
    retry = {"headers": {"Retry-After": {"schema": {"type": "integer"}}}}
    return good | {
        str(status): {"description": _REASONS[status], "content": error} | (retry if status == 503 else {})
        for status in (*others, 405, 421)
    }
