"""From recorded packets to what the client got: tokens, their times, and how it ended.

Runs after the load is over, so clarity is worth more than speed here.
"""

from dataclasses import dataclass, field

import msgspec

from loadtest.chunks import Choice, Chunk, Usage, error_code, refusal
from loadtest.framing import Piece, Response, split_events, split_response
from loadtest.outcome import ChoiceTrace, Outcome
from loadtest.wire import Fault, Recording

_DONE = b"[DONE]"


def decode(recording: Recording, origin: float) -> Outcome:
    """What the client of this exchange got; `origin` is the start of the round on the recording's clock."""
    response = split_response(recording.packets)
    if response is not None and response.status == 200 and response.is_event_stream:
        return _Reader(recording, response, origin).outcome()
    fault, detail = _refused(recording, response)
    start = recording.started_at
    return Outcome(_us(recording.ended_at - start), fault, detail, _us(start - origin))


def _refused(recording: Recording, response: Response | None) -> tuple[Fault, str]:
    if response is None:
        return recording.fault or (Fault.MALFORMED if recording.packets else Fault.CUT_OFF), ""
    if response.status != 200:
        return Fault.HTTP_STATUS, refusal(response.status, response.body)
    return recording.fault or Fault.MALFORMED, "no event stream"


def _us(seconds: float) -> float:
    """To the microsecond: finer digits are noise, and make records large."""
    return round(seconds, 6)


@dataclass(slots=True)
class _ChoiceText:
    """One choice while its chunks are put together."""

    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    every_text_has_ids: bool = True
    finish_reason: str | None = None

    def add(self, choice: Choice) -> None:
        self.text.append(choice.content)
        ids = choice.ids
        self.token_ids.extend(ids or ())
        if choice.content and ids is None:
            self.every_text_has_ids = False
        self.finish_reason = choice.finish_reason or self.finish_reason

    def trace(self) -> ChoiceTrace:
        ids = tuple(self.token_ids) if self.token_ids and self.every_text_has_ids else None
        return ChoiceTrace("".join(self.text), ids, self.finish_reason)


class _Reader:
    """Reads the events of one stream in order."""

    def __init__(self, recording: Recording, response: Response, origin: float) -> None:
        self._recording = recording
        self._origin = origin
        self._response = response
        self._choices: dict[int, _ChoiceText] = {}
        self._token_times: list[float] = []
        self._token_counts: list[int] = []
        self._usage: Usage | None = None
        self._done = False
        self._malformed = 0
        self._error = ""

    def outcome(self) -> Outcome:
        """Read everything and conclude."""
        for event in split_events(self._response.pieces):
            self._read(event)
        fault, detail = self._verdict()
        start = self._recording.started_at
        return Outcome(
            e2e_s=_us(self._recording.ended_at - start),
            fault=fault,
            detail=detail,
            started_at=_us(start - self._origin),
            arrivals_s=tuple(_us(at - start) for at in self._token_times),
            token_counts=tuple(self._token_counts),
            choices=tuple(text.trace() for _, text in sorted(self._choices.items())),
            prompt_tokens=self._usage.prompt_tokens if self._usage else None,
            completion_tokens=self._usage.completion_tokens if self._usage else None,
            malformed_events=self._malformed,
        )

    def _read(self, event: Piece) -> None:
        if event.data == _DONE:
            self._done = True
            return
        try:
            chunk = msgspec.json.decode(event.data, type=Chunk)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._malformed += 1
            return
        if chunk.error is not None:
            self._error = error_code(chunk.error)
        self._usage = chunk.usage or self._usage
        self._take(chunk, event.at)

    def _take(self, chunk: Chunk, at: float) -> None:
        for choice in chunk.choices:
            self._choices.setdefault(choice.index, _ChoiceText()).add(choice)
        num_tokens = sum(choice.num_tokens for choice in chunk.choices)
        if num_tokens:
            self._token_times.append(at)
            self._token_counts.append(num_tokens)

    def _verdict(self) -> tuple[Fault | None, str]:
        if self._error:
            return Fault.ERROR_EVENT, self._error
        if self._malformed:
            return Fault.MALFORMED, "event"
        if self._recording.fault is not None:
            return self._recording.fault, ""
        if not self._ended():
            return Fault.CUT_OFF, ""
        return (None, "") if self._token_times else (Fault.NO_TOKENS, "")

    def _ended(self) -> bool:
        finished = bool(self._choices) and all(c.finish_reason for c in self._choices.values())
        return self._done or (finished and self._response.whole)
