"""Limits on log lines that strangers cause: how many, how long, and which characters.

Every event with an `address` was caused by a caller who need not be known. Of one event, code and address at most
LINES_MAX lines are written in a window; the next line then counts those that were dropped. If very many addresses
call, they share one limit.
"""

import io
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from structlog.typing import EventDict

WINDOW_S = 10.0
LINES_MAX = 10
ADDRESSES_MAX = 1_000
VALUE_CHARACTERS_MAX = 4_096
SHORT_CHARACTERS_MAX = 200
"""Of a path, which a stranger chooses."""

# C0 and C1 controls, and marks that change the direction of a text.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CONTROL_IN_LINES = re.compile(_CONTROL.pattern.replace(r"\x00-\x1f", r"\x00-\x09\x0b-\x1f"))


@dataclass(slots=True)
class _Window:
    began: float
    lines: int = 0
    dropped: int = 0


class LineLimiter:
    """A processor of structlog that drops repeated lines and shortens values."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._windows: dict[tuple[str, str, str], _Window] = {}

    def __call__(self, _logger: Any, _method: str, event: EventDict) -> EventDict:
        if "address" in event:
            dropped = self._admit(event)
            if dropped:
                event["dropped"] = dropped
        for name, value in event.items():
            if isinstance(value, str) and len(value) > SHORT_CHARACTERS_MAX:
                characters_max = SHORT_CHARACTERS_MAX if name == "path" else VALUE_CHARACTERS_MAX
                if len(value) > characters_max:
                    event[name] = f"{value[:characters_max]}…"
        return event

    def _admit(self, event: EventDict) -> int:
        """How many lines were dropped before this one; DropEvent if this one is dropped too."""
        now = self._now()
        key = (str(event.get("event")), str(event.get("code")), str(event["address"]))
        if key not in self._windows and len(self._windows) >= ADDRESSES_MAX:
            self._windows = {one: window for one, window in self._windows.items() if now - window.began < WINDOW_S}
            if len(self._windows) >= ADDRESSES_MAX:
                key = (*key[:2], "")
        window = self._windows.setdefault(key, _Window(now))
        dropped = 0
        if now - window.began >= WINDOW_S:
            dropped = window.dropped
            window.began, window.lines, window.dropped = now, 0, 0
        window.lines += 1
        if window.lines > LINES_MAX:
            window.dropped += 1
            raise structlog.DropEvent
        return dropped


def escape(text: str, *, keeps_lines: bool = False) -> str:
    """The text without characters that a terminal would act on; they appear as in Python source."""
    pattern = _CONTROL_IN_LINES if keeps_lines else _CONTROL
    return pattern.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def escape_values(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """A processor that escapes every text for a terminal."""
    # Values other than texts are rendered by repr, which escapes.
    return {name: escape(value) if isinstance(value, str) else value for name, value in event.items()}


def escaped_traceback(out: Any, exc_info: Any) -> None:
    """A traceback for a terminal, without variables."""
    plain = io.StringIO()
    structlog.dev.plain_traceback(plain, exc_info)
    out.write(escape(plain.getvalue(), keeps_lines=True))
