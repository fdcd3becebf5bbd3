"""The HTTP side: OpenAI-style endpoints over a scheduler's Runner.

`create_app(readiness, metrics, settings)` builds the application. `Metrics` is the observer to give to Core.
Open the socket as soon as you like; when the model is loaded and the runner runs, call
`readiness.set_ready(model, runner)`, and before draining `readiness.set_draining()`.
"""

from batchserve.http.metrics import Metrics
from batchserve.http.model import ServedModel
from batchserve.http.readiness import Readiness, ServerState
from batchserve.http.routes import create_app
from batchserve.http.settings import Settings

__all__ = ["Metrics", "Readiness", "ServedModel", "ServerState", "Settings", "create_app"]
