"""What can be set for a site, in the sections of `site.toml`."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

from fieldpost.core.errors import InvalidInput
from fieldpost.link.messages import FRAME_BYTES_MAX, ITEMS_MAX

RESERVE_BYTES = 8 * 1024 * 1024
"""The room kept free on the disk, and the smallest reserve that works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOptions:
    """[forward]: how the agent forwards notifications."""

    interval_s: float = 10.0
    """Between two sweeps, and after a failure before the next try: one fixed interval for everything."""
    jitter: float = 0.0
    """Up to this share of the interval is added by chance, so that a fleet does not come back in step."""
    poll_s: float = 0.2
    """How often to look whether another process has written; a write wakes the forwarder at once."""
    batch_items: int = ITEMS_MAX
    """At most so many messages go to central in one batch."""
    batch_bytes: int = FRAME_BYTES_MAX // 2
    """At most so many bytes of payload go to central in one batch (one message always may)."""
    grace_s: float = 10.0
    """How long a batch that is under way may take when the agent is told to stop."""

    def __post_init__(self) -> None:
        _check_numbers(
            self,
            ("interval_s", 0.05, 86_400),
            ("jitter", 0, 1),
            ("poll_s", 0.01, 3_600),
            ("batch_items", 1, ITEMS_MAX),
            ("batch_bytes", 1, FRAME_BYTES_MAX // 2),
            ("grace_s", 0, 600),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """[calls]: how the agent tries external calls and database writes again."""

    at_once_max: int = 16
    """At most so many external calls, and as many database writes, are under way at once."""
    per_target_max: int = 4
    """At most so many of them for one external system or connection, so that a slow one leaves room for the others."""

    def __post_init__(self) -> None:
        _check_numbers(self, ("at_once_max", 1, 256), ("per_target_max", 1, 256))


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferOptions:
    """[buffer]: how large the buffer may grow."""

    bytes_max: int = 0
    """How many bytes `buffer.db` may fill before new messages are refused; 0 means as many as the disk has."""
    overflow: Literal["refuse"] = "refuse"
    """What happens to a new message beyond `bytes_max`: `refuse` raises an error to the script and drops nothing."""
    reserve_bytes: int = RESERVE_BYTES
    """The agent keeps a file of this size and gives it up when the disk is full, so that what is buffered can still
    leave; at most a quarter of the disk. 0 means none."""

    def __post_init__(self) -> None:
        _check_numbers(self, ("bytes_max", 0, 1 << 50), ("reserve_bytes", 0, 1 << 30))
        if 0 < self.reserve_bytes < RESERVE_BYTES:
            raise InvalidInput("option.range", f"must be 0, or at least {RESERVE_BYTES}", field="reserve_bytes")
        if 0 < self.bytes_max < BYTES_MAX_LEAST:
            raise InvalidInput("option.range", f"must be 0, or at least {BYTES_MAX_LEAST}", field="bytes_max")
        _check_word(self, "overflow", ("refuse",))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingOptions:
    """[tracking]: how long the records of external calls and database writes stay."""

    retention_days: float = 7.0
    """How long after its end a record stays. What is parked has not come to its end and stays until a person acts."""
    key_retention_days: float = 7.0
    """How long a `key` is remembered: within that time the same send or call made again is the same one."""

    def __post_init__(self) -> None:
        _check_numbers(self, ("retention_days", 0.01, 36_500), ("key_retention_days", 0.01, 36_500))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOptions:
    """[events]: the site's event log."""

    notifications: Literal["failures", "all"] = "failures"
    """What to log of notifications: only `failures`, since their record is central's, or `all`."""
    retention_days: float = 30.0
    """How long an entry stays."""
    bytes_max: int = 16 * 1024 * 1024
    """How many bytes the log may count for; beyond, the oldest entries go first."""
    waiting_s: float = 600.0
    """A notification that waits longer than this to be forwarded is an entry (once, until none does)."""

    def __post_init__(self) -> None:
        _check_numbers(
            self, ("retention_days", 0.01, 36_500), ("bytes_max", 65_536, 1 << 40), ("waiting_s", 1, 31_536_000)
        )
        _check_word(self, "notifications", ("failures", "all"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """[local]: the agent's own HTTP API, for programs in any language on this machine."""

    socket: bool = True
    """Whether to serve it on the Unix socket `agent.sock` in the site's folder, for the agent's own user."""
    port: int = 0
    """The port of 127.0.0.1 to serve it on, for whoever shows the token in `local.token`; 0 means none."""

    def __post_init__(self) -> None:
        _check_numbers(self, ("port", 0, 65_535))
        if type(self.socket) is not bool:
            raise InvalidInput("option.word", f"must be true or false, not {self.socket!r}", field="socket")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """[report]: what the agent tells central of the site."""

    health_interval_s: float = 30.0
    """Between two reports on how the site is; central calls a site late after 45 s without one."""
    telemetry: bool = True
    """Whether changes of external calls and database writes are told as they happen. Without it central learns of them
    by asking, when the agent connects and every few minutes."""
    poll_s: float = 0.5
    """How often to look whether there is something to tell."""
    reconnect_interval_s: float = 10.0
    """Between the end of the control connection and the next try to open one; up to half of it is added by chance."""

    def __post_init__(self) -> None:
        _check_numbers(
            self, ("health_interval_s", 0.1, 3_600), ("poll_s", 0.01, 60), ("reconnect_interval_s", 0.05, 3_600)
        )
        if not isinstance(self.telemetry, bool):
            raise InvalidInput("option.truth", f"must be true or false, not {self.telemetry!r}", field="telemetry")


BYTES_MAX_LEAST = 1024 * 1024


def _check_numbers(options: Any, *ranges: tuple[str, float, float]) -> None:
    defaults = {field.name: field.default for field in fields(options)}
    for field, low, high in ranges:
        value = getattr(options, field)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or not low <= value <= high:
            raise InvalidInput("option.range", f"must be a number from {low} to {high}, not {value!r}", field=field)
        if isinstance(defaults[field], int) and not isinstance(value, int):
            raise InvalidInput("option.range", f"must be a whole number, not {value!r}", field=field)


def _check_word(options: Any, field: str, words: tuple[str, ...]) -> None:
    value = getattr(options, field)
    if value not in words:
        raise InvalidInput("option.word", f"must be {' or '.join(words)}, not {value!r}", field=field)
