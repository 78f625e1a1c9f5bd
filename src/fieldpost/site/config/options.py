"""The options of a site, by section of `site.toml`."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast, get_args

from fieldpost.core.errors import InvalidInput
from fieldpost.link.messages import FRAME_BYTES_MAX, ITEMS_MAX

PAIR_PORT = 8027
WAIT_MS_MAX = 200
"""The longest that a script waits for the copy on the other node."""
RESERVE_BYTES = 8 * 1024 * 1024
"""The default size of the reserve on the disk, and the smallest that works."""
BYTES_MAX_MIN = 1024 * 1024


def _number(default: float, low: float, high: float, *, is_zero_allowed: bool = False) -> Any:
    """A field with this range; 0 may be allowed in addition."""
    return field(default=default, metadata={"range": (low, high, is_zero_allowed)})


class _Options:
    """Checks the values of a section by the annotations and ranges of its fields."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for option in fields(cast(Any, self)):
            _check(option.name, option.type, getattr(self, option.name), option.metadata.get("range"))


def _check(name: str, kind: Any, value: Any, allowed: tuple[float, float, bool] | None) -> None:
    if kind is str:
        if not isinstance(value, str):
            raise InvalidInput("option.text", f"must be a string, got {value!r}", field=name)
    elif kind is bool:
        if not isinstance(value, bool):
            raise InvalidInput("option.truth", f"must be true or false, got {value!r}", field=name)
    elif allowed is None:
        if value not in (choices := get_args(kind)):
            raise InvalidInput("option.word", f"must be {' or '.join(choices)}, got {value!r}", field=name)
    else:
        low, high, is_zero_allowed = allowed
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (low <= value <= high or (is_zero_allowed and value == 0)):
            rule = f"{'0, or ' if is_zero_allowed else ''}a number from {low} to {high}"
            raise InvalidInput("option.range", f"must be {rule}, got {value!r}", field=name)
        if kind is int and not isinstance(value, int):
            raise InvalidInput("option.range", f"must be an integer, got {value!r}", field=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOptions(_Options):
    """[forward]: how the agent forwards notifications."""

    interval_s: float = _number(10.0, 0.05, 86_400)
    """Between two sweeps, also after a failure: one fixed interval."""
    jitter: float = _number(0.0, 0, 1)
    """The random share of the interval that is added to it, so that many sites do not reconnect in step."""
    poll_s: float = _number(0.2, 0.01, 3_600)
    """How often to check whether another process has written; a write wakes the forwarder."""
    batch_items: int = _number(ITEMS_MAX, 1, ITEMS_MAX)
    """The most messages in one batch to central."""
    batch_bytes: int = _number(FRAME_BYTES_MAX // 2, 1, FRAME_BYTES_MAX // 2)
    """The most bytes of payload in one batch to central (a single message may exceed it)."""
    grace_s: float = _number(10.0, 0, 600)
    """How long a stopping agent waits for batches in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions(_Options):
    """[calls]: how the agent retries external calls and database writes."""

    at_once_max: int = _number(16, 1, 256)
    """The most external calls in progress at a time; the same for database writes."""
    per_target_max: int = _number(4, 1, 256)
    """The most of them for one external system or connection, so that a slow one does not block the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferOptions(_Options):
    """[buffer]: the size of the buffer."""

    bytes_max: int = _number(0, BYTES_MAX_MIN, 1 << 50, is_zero_allowed=True)
    """The size of `buffer.db` at which new messages are refused; 0 means limited only by the disk."""
    overflow: Literal["refuse"] = "refuse"
    """The treatment of a new message beyond `bytes_max`: `refuse` raises an error in the script; nothing is dropped."""
    reserve_bytes: int = _number(RESERVE_BYTES, RESERVE_BYTES, 1 << 30, is_zero_allowed=True)
    """The size of a file beside the buffer that is emptied when the disk is full, so that buffered messages can still
    leave; at most a quarter of the disk. 0 means no reserve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingOptions(_Options):
    """[tracking]: retention of the records of external calls and database writes."""

    retention_days: float = _number(7.0, 0.01, 36_500)
    """How long a record is kept after its end. A parked call has not ended and is kept until a person acts."""
    key_retention_days: float = _number(7.0, 0.01, 36_500)
    """How long an idempotency `key` is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOptions(_Options):
    """[events]: the site's event log."""

    notifications: Literal["failures", "all"] = "failures"
    """The events of notifications to log: only `failures`, since central keeps their record, or `all`."""
    retention_days: float = _number(30.0, 0.01, 36_500)
    """How long an entry is kept."""
    bytes_max: int = _number(16 * 1024 * 1024, 65_536, 1 << 40)
    """The approximate size limit of the log; the oldest entries are deleted first."""
    waiting_s: float = _number(600.0, 1, 31_536_000)
    """How long a notification may wait to be forwarded before that is logged (once, until the queue recovers)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions(_Options):
    """[local]: the agent's HTTP API for programs in any language on this machine."""

    socket: bool = True
    """Whether to serve it on the Unix socket `agent.sock` in the site's folder, for the agent's user."""
    port: int = _number(0, 0, 65_535)
    """The port on 127.0.0.1, where requests need the token in `local.token`; 0 means no port."""
    connections_max: int = _number(128, 4, 1_024)
    """The most open connections of the socket, and of the port; the one that has waited longest makes room."""
    timeout_s: float = _number(30.0, 0.1, 3_600)
    """How long a connection may wait: for a request, for the rest of one, or for a client that does not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(_Options):
    """[report]: reports of the agent to central."""

    health_interval_s: float = _number(30.0, 0.1, 3_600)
    """Between two health reports; central shows a site as late after 45 s without one."""
    telemetry: bool = True
    """Whether changes of external calls and database writes are reported as they happen. Otherwise central asks for
    them when the agent connects and every few minutes."""
    poll_s: float = _number(0.5, 0.01, 60)
    """How often to check for changes to report."""
    reconnect_interval_s: float = _number(10.0, 0.05, 3_600)
    """The wait before the control connection is opened again; up to half of it is added at random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions(_Options):
    """[pair]: this node of a pair, as written by `fieldpost site pair init` and `join`."""

    listen: str = ""
    """The address of this machine at which the other node reaches it, HOST:PORT. It must name one address."""
    peer: str = ""
    """The address of the other node, HOST:PORT."""
    policy: Literal["availability", "consistency"] = "availability"
    """The choice where central cannot decide: the standby takes over after a margin, and calls may be executed twice;
    or it waits for a person, and calls may wait."""
    notification_wait_ms: int = _number(0, 0, WAIT_MS_MAX)
    """How long `send` waits for the copy on the other node after its own commit. It returns in any case."""
    external_call_wait_ms: int = _number(0, 0, WAIT_MS_MAX)
    """The same for an external call, before its first attempt."""
    database_write_wait_ms: int = _number(0, 0, WAIT_MS_MAX)
    """The same for a database write, before its first attempt."""

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is another class than the one whose method this is.
        _Options.__post_init__(self)
        for name in ("listen", "peer"):
            if getattr(self, name):
                parse_address(getattr(self, name), name)


def parse_address(text: str, field_name: str) -> tuple[str, int]:
    """Host and port of HOST:PORT, or [HOST]:PORT for IPv6. Raises InvalidInput otherwise, and for all interfaces."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_plain = host.isprintable() and not set(host) & set(" /@[]#")
    if not (colon and is_plain and port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65_535):
        raise InvalidInput("option.address", f"must be HOST:PORT, got {text[:100]!r}", field=field_name)
    if host in ("", "*", "0.0.0.0", "::"):
        raise InvalidInput(
            "option.address", f"must name one address, not all interfaces, got {text!r}", field=field_name
        )
    return host, int(port)
