"""Log lines for people: time, level, where from, what."""

from __future__ import annotations

import logging

LEVELS = ("debug", "info", "warning", "error")


def set_up(level: str) -> None:
    """Send everything at `level` (one of LEVELS) and above to standard error."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", datefmt="%H:%M:%S"
    )
    # Our own access lines say more than the libraries' do.
    for noisy in ("aiohttp.access", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
