"""A thread for the engine, with a hand-over short enough to pay at every token."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds the event loop waits, at most, for the thread to begin.
_HAND_OVER = 0.002

_Job = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"]


class Worker:
    """Runs calls one after another in a thread of its own; a context manager that ends with the thread.

    A thread that wakes up needs the interpreter lock, which the event loop would go on holding while it writes to
    its clients. So `call` lets go of the lock until the thread has begun: the engine starts first, and the loop
    does its work while the engine computes.
    """

    def __init__(self, name: str) -> None:
        self._inbox: SimpleQueue[_Job | None] = SimpleQueue()
        self._begun = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inbox.put(None)
        self._thread.join()

    def call(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Start `function(*arguments)` in the thread; the future has its result or its exception."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._inbox.put((function, arguments, future))
        self._begun.acquire(timeout=_HAND_OVER)
        return future

    def _run(self) -> None:
        while (job := self._inbox.get()) is not None:
            function, arguments, future = job
            self._begun.release()
            loop = future.get_loop()
            try:
                result = function(*arguments)
            except BaseException as error:
                loop.call_soon_threadsafe(_fail, future, error)
            else:
                loop.call_soon_threadsafe(_resolve, future, result)


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
