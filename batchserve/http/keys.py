"""What is stored in the application and in a request, by typed keys."""

from __future__ import annotations

from aiohttp import web

from batchserve.http.fields import UnknownFields
from batchserve.http.metrics import Metrics
from batchserve.http.readiness import Readiness
from batchserve.http.settings import Settings

READINESS = web.AppKey("readiness", Readiness)
METRICS = web.AppKey("metrics", Metrics)
SETTINGS = web.AppKey("settings", Settings)
UNKNOWN_FIELDS = web.AppKey("unknown_fields", UnknownFields)

REQUEST_ID = web.RequestKey("request_id", str)
