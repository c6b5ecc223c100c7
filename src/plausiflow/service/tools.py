"""Tools of assistants: predict, explain and what-if, with the schemas, queues and limits of the service.

They know nothing of the protocol that carries them; :mod:`plausiflow.service.mcp_server` does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from plausiflow.service.errors import RequestError, format_value, format_values, suggest
from plausiflow.service.jobs import Job, explain_jobs, predict_jobs
from plausiflow.service.schemas import (
    ExplainRequest,
    PredictRequest,
    WhatIfRequest,
    build_schemas,
    check_counterfactuals,
    describe_errors,
)
from plausiflow.service.served_model import ServedModel
from plausiflow.service.service import Service

DESCRIPTIONS = {
    "predict": "Predict rows with the model: the outcome and its probabilities, or a number.",
    "explain": "Find the closest plausible rows that the model decides as the target. Every row gets a "
    "status (found, already, infeasible, not_reached, invalid_input) and a reason; changes say what would "
    "have to be different. Parameters: `locked` features stay, `ranges` bound numbers, `k` asks for "
    "alternatives.",
    "what_if": "Change some values of one row: what the model predicts before and after, and what else would "
    "have to change for the target, while the changed and the `locked` features stay as they are.",
}
"""What an assistant reads about each tool."""


@dataclass(frozen=True)
class Tool:
    """One tool: its name, what it does, and the JSON schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]


class Tools:
    """The tools of one model."""

    def __init__(self, service: Service) -> None:
        self.service = service
        (self.served,) = service.models.values()
        types = build_schemas(self.served, service.settings)
        self._types = {"predict": types.predict, "explain": types.explain, "what_if": types.what_if}

    def all(self) -> list[Tool]:
        """Return the tools."""
        return [Tool(n, DESCRIPTIONS[n], kind.model_json_schema()) for n, kind in self._types.items()]

    @property
    def instructions(self) -> str:
        """What an assistant must know about the model."""
        return _instructions(self.served)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a tool.

        Raises:
            RequestError: The arguments are invalid or too many, or the service is too busy.
        """
        request = self._read(name, arguments)
        if name == "predict":
            return {"predictions": await self._run(predict_jobs, request)}
        if name == "explain":
            check_counterfactuals(request, self.service.settings.max_counterfactuals)
            return {"explanations": await self._run(explain_jobs, request)}
        return await self._what_if(request)

    def _read(self, name: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return arguments as a request."""
        if name not in self._types:
            known = format_values(self._types)
            text = f"The tools are {known}; got {format_value(name)}{suggest(name, self._types)}."
            raise RequestError(404, text)
        try:
            size = len(json.dumps(dict(arguments), allow_nan=False).encode())
        except ValueError:
            raise RequestError(400, "The arguments must be JSON, without NaN and infinity.") from None
        if size > self.service.settings.max_body:
            text = f"The arguments may have {self.service.settings.max_body} bytes; these have more. "
            raise RequestError(413, text + "Send fewer rows at once.")
        try:
            return self._types[name].model_validate(dict(arguments))
        except ValidationError as error:
            errors = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
            raise describe_errors(errors) from None

    async def _run(self, make_jobs: Callable[[ServedModel, Any], list[Job]], request: Any) -> list[Any]:  # noqa: ANN401
        """Return the result of each row; a client that goes away cancels this."""
        texts, _ = await self.service.run(make_jobs(self.served, request), asyncio.Event().wait)
        return [json.loads(text) for text in texts]

    async def _what_if(self, request: WhatIfRequest) -> dict[str, Any]:
        """Return predictions before and after the changes, and what else must change."""
        changed = {**request.instance, **request.changes}
        rows = PredictRequest(instances=[request.instance, changed])
        before, after = await self._run(predict_jobs, rows)
        parameters = self._types["explain"].model_fields["parameters"].annotation
        assert parameters is not None
        locked = sorted({*request.locked, *request.changes})
        asked = ExplainRequest(
            instances=[changed], target=request.target, parameters=parameters(locked=locked)
        )
        (explanation,) = await self._run(explain_jobs, asked)
        return {"before": before, "after": after, "kept": locked, "explanation": explanation}


def _instructions(served: ServedModel) -> str:
    outcomes = format_values(served.labels) if served.labels else "a number"
    features = "; ".join(f"{feature.name}: {feature.description}" for feature in served.schema.features)
    rules = format_values(map(str, served.explainer.constraints)) or "none"
    return (
        f"Model {served.name} decides: {outcomes}. A row is an object with every feature. Features: "
        f"{features}. Rules of every suggestion: {rules}. A suggestion describes the model; it does not "
        "promise a decision."
    )
