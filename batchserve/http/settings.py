"""What an operator can change about the HTTP side."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and intervals; sizes in bytes, times in seconds."""

    max_body_bytes: int = 8 * 1024 * 1024
    heartbeat_seconds: float = 15.0
