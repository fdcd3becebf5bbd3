"""GET endpoints: which model there is, and how the server does."""

from __future__ import annotations

from aiohttp import web

from batchserve.http.keys import READINESS
from batchserve.http.model import ServedModel, check_model
from batchserve.http.readiness import ServerState
from batchserve.http.replies import json_response


async def list_models(request: web.Request) -> web.Response:
    """GET /v1/models."""
    model = request.app[READINESS].model()
    return json_response({"object": "list", "data": [_model_object(model)]})


async def show_model(request: web.Request) -> web.Response:
    """GET /v1/models/{id}."""
    model = request.app[READINESS].model()
    check_model(request.match_info["id"], model)
    return json_response(_model_object(model) | model.facts())


async def health(request: web.Request) -> web.Response:
    """GET /health: the process answers."""
    return json_response({"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    """GET /ready: 200 while new requests are taken."""
    state = request.app[READINESS].state
    return json_response({"status": state}, status=200 if state is ServerState.READY else 503)


def _model_object(model: ServedModel) -> dict[str, object]:
    return {"id": model.id, "object": "model", "created": model.created, "owned_by": "batchserve"}
