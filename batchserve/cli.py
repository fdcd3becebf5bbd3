"""The command `batchserve`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from batchserve import __version__, log
from batchserve.config import QUEUE_PER_STREAM, Config, ConfigError, ExtraBuffers, find_model

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"batchserve {__version__}")
        raise typer.Exit


def _check_level(level: str) -> str:
    if level not in log.LEVELS:
        raise typer.BadParameter(f"one of {', '.join(log.LEVELS)} is needed")
    return level


@app.command()
def serve(
    model: Annotated[
        Path | None, typer.Option(help="GGUF file to serve.", show_default="the embedded SmolLM2")
    ] = None,
    model_id: Annotated[
        str | None, typer.Option(help="Name of the model in the API.", show_default="the file's stem")
    ] = None,
    max_batch_streams: Annotated[int, typer.Option(min=1, max=256, help="Requests that decode together.")] = 4,
    max_queue: Annotated[
        int | None,
        typer.Option(min=0, help="Requests that may wait for a stream.", show_default="16 x streams"),
    ] = None,
    ctx_per_stream: Annotated[
        int | None,
        typer.Option(
            min=8,
            help="Tokens of prompt and answer per stream.",
            show_default="4096, or the training context if smaller",
        ),
    ] = None,
    prefill_chunk: Annotated[
        int, typer.Option(min=4, max=4096, help="Prompt rows computed between two decode steps, at most.")
    ] = 256,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads that compute a step.", show_default="physical cores allowed"),
    ] = None,
    extra_buffers: Annotated[
        ExtraBuffers, typer.Option(help="Weights repacked for the CPU's matrix units.")
    ] = ExtraBuffers.AUTO,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8080,
    max_body_mib: Annotated[float, typer.Option(min=0.01, help="Largest request body in MiB.")] = 8.0,
    drain_timeout: Annotated[
        float, typer.Option(min=0, help="Seconds that running streams get to end after SIGTERM.")
    ] = 30.0,
    log_level: Annotated[str, typer.Option(callback=_check_level, help="debug, info, warning or error.")] = "info",
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Serve a GGUF model to many streaming clients at once; each gets the tokens it would get alone."""
    log.set_up(log_level)
    try:
        path = find_model(model)
    except ConfigError as error:
        _exit_with(error)
    from batchserve.llama.threads import default_threads

    config = Config(
        model=path,
        model_id=model_id or path.stem,
        max_batch_streams=max_batch_streams,
        max_queue=QUEUE_PER_STREAM * max_batch_streams if max_queue is None else max_queue,
        ctx_per_stream=ctx_per_stream,
        prefill_chunk=prefill_chunk,
        threads=threads or default_threads(),
        extra_buffers=extra_buffers,
        host=host,
        port=port,
        max_body_mib=max_body_mib,
        drain_timeout=drain_timeout,
    )
    _run(config)


def _run(config: Config) -> None:
    import uvloop

    from batchserve.app import serve as serve_forever
    from batchserve.llama.errors import ModelError
    from scheduler import EngineError

    # A thread that comes out of llama.cpp waits this long for the interpreter, at most, before its next step.
    sys.setswitchinterval(0.0005)
    try:
        uvloop.run(serve_forever(config))
    except (ConfigError, ModelError) as error:
        _exit_with(error)
    except EngineError as error:
        _exit_with(error, code=1)


def _exit_with(error: Exception, code: int = 2) -> NoReturn:
    typer.echo(f"batchserve: {error}", err=True)
    raise typer.Exit(code)


def main() -> None:
    """Entry point of the console script."""
    app()
