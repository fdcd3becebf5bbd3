"""The application: what answers where."""

from __future__ import annotations

from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from batchserve.http import generate, probes
from batchserve.http.fields import UnknownFields
from batchserve.http.keys import METRICS, READINESS, SETTINGS, UNKNOWN_FIELDS
from batchserve.http.metrics import Metrics
from batchserve.http.middleware import add_headers, answer_errors
from batchserve.http.readiness import Readiness
from batchserve.http.settings import Settings


def create_app(readiness: Readiness, metrics: Metrics, settings: Settings) -> web.Application:
    """Build the application.

    Run it with `handler_cancellation=True`: a client that goes away then cancels its handler, which frees its
    streams. It may be started before the model is loaded; `readiness.set_ready(model, runner)` follows.
    """
    app = web.Application(middlewares=[answer_errors], client_max_size=settings.max_body_bytes)
    app[READINESS] = readiness
    app[METRICS] = metrics
    app[SETTINGS] = settings
    app[UNKNOWN_FIELDS] = UnknownFields()
    metrics.watch(lambda: readiness.num_running, lambda: readiness.num_waiting)
    app.on_response_prepare.append(add_headers)
    app.router.add_post("/v1/chat/completions", generate.chat_completions)
    app.router.add_post("/v1/completions", generate.completions)
    app.router.add_get("/v1/models", probes.list_models)
    app.router.add_get("/v1/models/{id:.+}", probes.show_model)
    app.router.add_get("/health", probes.health)
    app.router.add_get("/ready", probes.ready)
    app.router.add_get("/metrics", make_aiohttp_handler(metrics.registry))
    return app
