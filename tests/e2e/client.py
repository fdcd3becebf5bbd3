"""A small streaming client: what one request gave, chunk by chunk."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import aiohttp


@dataclass
class Reply:
    """One answer as it came over the socket."""

    status: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    is_done: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    error: dict[str, Any] | None = None


async def stream(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any], leave_after: int | None = None
) -> Reply:
    """POST /v1/completions with streaming and token ids; leaves after `leave_after` chunks with text."""
    wanted = {"stream": True, "return_token_ids": True, "ignore_eos": True, **body}
    async with session.post(f"{url}/v1/completions", json=wanted) as response:
        reply = Reply(response.status, headers=dict(response.headers))
        if response.status != 200:
            reply.error = (await response.json())["error"]
            return reply
        chunks = 0
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            _take(reply, line[6:].strip())
            chunks += 1
            if leave_after is not None and chunks > leave_after:
                response.close()
                return reply
    return reply


def _take(reply: Reply, data: bytes) -> None:
    if data == b"[DONE]":
        reply.is_done = True
        return
    chunk = json.loads(data)
    reply.usage = chunk.get("usage") or reply.usage
    for choice in chunk["choices"]:
        reply.text += choice["text"]
        reply.token_ids += choice["token_ids"]
        reply.finish_reason = choice["finish_reason"] or reply.finish_reason
