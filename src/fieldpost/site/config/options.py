"""The options of a site, by section of `site.toml`."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

from fieldpost.core.errors import InvalidInput
from fieldpost.link.messages import FRAME_BYTES_MAX, ITEMS_MAX

RESERVE_BYTES = 8 * 1024 * 1024
"""The default size of the reserve on the disk, and the smallest that works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOptions:
    """[forward]: how the agent forwards notifications."""

    interval_s: float = 10.0
    """Between two sweeps, also after a failure: one fixed interval."""
    jitter: float = 0.0
    """The random share of the interval that is added to it, so that many sites do not reconnect in step."""
    poll_s: float = 0.2
    """How often to check whether another process has written; a write wakes the forwarder."""
    batch_items: int = ITEMS_MAX
    """The most messages in one batch to central."""
    batch_bytes: int = FRAME_BYTES_MAX // 2
    """The most bytes of payload in one batch to central (a single message may exceed it)."""
    grace_s: float = 10.0
    """How long a stopping agent waits for batches in flight."""

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
    """[calls]: how the agent retries external calls and database writes."""

    at_once_max: int = 16
    """The most external calls in progress at a time; the same for database writes."""
    per_target_max: int = 4
    """The most of them for one external system or connection, so that a slow one does not block the others."""

    def __post_init__(self) -> None:
        _check_numbers(self, ("at_once_max", 1, 256), ("per_target_max", 1, 256))


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferOptions:
    """[buffer]: the size of the buffer."""

    bytes_max: int = 0
    """The size of `buffer.db` at which new messages are refused; 0 means limited only by the disk."""
    overflow: Literal["refuse"] = "refuse"
    """The treatment of a new message beyond `bytes_max`: `refuse` raises an error in the script; nothing is dropped."""
    reserve_bytes: int = RESERVE_BYTES
    """The size of a file beside the buffer that is emptied when the disk is full, so that buffered messages can still
    leave; at most a quarter of the disk. 0 means no reserve."""

    def __post_init__(self) -> None:
        _check_numbers(self, ("bytes_max", 0, 1 << 50), ("reserve_bytes", 0, 1 << 30))
        if 0 < self.reserve_bytes < RESERVE_BYTES:
            raise InvalidInput("option.range", f"must be 0, or at least {RESERVE_BYTES}", field="reserve_bytes")
        if 0 < self.bytes_max < BYTES_MAX_MIN:
            raise InvalidInput("option.range", f"must be 0, or at least {BYTES_MAX_MIN}", field="bytes_max")
        _check_choice(self, "overflow", ("refuse",))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingOptions:
    """[tracking]: retention of the records of external calls and database writes."""

    retention_days: float = 7.0
    """How long a record is kept after its end. A parked call has not ended and is kept until a person acts."""
    key_retention_days: float = 7.0
    """How long an idempotency `key` is remembered."""

    def __post_init__(self) -> None:
        _check_numbers(self, ("retention_days", 0.01, 36_500), ("key_retention_days", 0.01, 36_500))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOptions:
    """[events]: the site's event log."""

    notifications: Literal["failures", "all"] = "failures"
    """The events of notifications to log: only `failures`, since central keeps their record, or `all`."""
    retention_days: float = 30.0
    """How long an entry is kept."""
    bytes_max: int = 16 * 1024 * 1024
    """The approximate size limit of the log; the oldest entries are deleted first."""
    waiting_s: float = 600.0
    """How long a notification may wait to be forwarded before that is logged (once, until the queue recovers)."""

    def __post_init__(self) -> None:
        _check_numbers(
            self, ("retention_days", 0.01, 36_500), ("bytes_max", 65_536, 1 << 40), ("waiting_s", 1, 31_536_000)
        )
        _check_choice(self, "notifications", ("failures", "all"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """[local]: the agent's HTTP API for programs in any language on this machine."""

    socket: bool = True
    """Whether to serve it on the Unix socket `agent.sock` in the site's folder, for the agent's user."""
    port: int = 0
    """The port on 127.0.0.1, where requests need the token in `local.token`; 0 means no port."""

    def __post_init__(self) -> None:
        _check_numbers(self, ("port", 0, 65_535))
        if type(self.socket) is not bool:
            raise InvalidInput("option.word", f"must be true or false, got {self.socket!r}", field="socket")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """[report]: reports of the agent to central."""

    health_interval_s: float = 30.0
    """Between two health reports; central shows a site as late after 45 s without one."""
    telemetry: bool = True
    """Whether changes of external calls and database writes are reported as they happen. Otherwise central asks for
    them when the agent connects and every few minutes."""
    poll_s: float = 0.5
    """How often to check for changes to report."""
    reconnect_interval_s: float = 10.0
    """The wait before the control connection is opened again; up to half of it is added at random."""

    def __post_init__(self) -> None:
        _check_numbers(
            self, ("health_interval_s", 0.1, 3_600), ("poll_s", 0.01, 60), ("reconnect_interval_s", 0.05, 3_600)
        )
        if not isinstance(self.telemetry, bool):
            raise InvalidInput("option.truth", f"must be true or false, got {self.telemetry!r}", field="telemetry")


BYTES_MAX_MIN = 1024 * 1024


def _check_numbers(options: Any, *ranges: tuple[str, float, float]) -> None:
    defaults = {field.name: field.default for field in fields(options)}
    for field, low, high in ranges:
        value = getattr(options, field)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or not low <= value <= high:
            raise InvalidInput("option.range", f"must be a number from {low} to {high}, got {value!r}", field=field)
        if isinstance(defaults[field], int) and not isinstance(value, int):
            raise InvalidInput("option.range", f"must be an integer, got {value!r}", field=field)


def _check_choice(options: Any, field: str, choices: tuple[str, ...]) -> None:
    value = getattr(options, field)
    if value not in choices:
        raise InvalidInput("option.word", f"must be {' or '.join(choices)}, got {value!r}", field=field)
