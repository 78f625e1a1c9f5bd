"""What can be set for a site's agent: the section `[forward]` of `site.toml`."""

import math
from dataclasses import dataclass, fields

from fieldpost.core.errors import InvalidInput
from fieldpost.link.messages import FRAME_BYTES_MAX, ITEMS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOptions:
    """How the agent forwards."""

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
        for field, low, high in (
            ("interval_s", 0.05, 86_400),
            ("jitter", 0, 1),
            ("poll_s", 0.01, 3_600),
            ("batch_items", 1, ITEMS_MAX),
            ("batch_bytes", 1, FRAME_BYTES_MAX // 2),
            ("grace_s", 0, 600),
        ):
            value = getattr(self, field)
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not is_number or not low <= value <= high:
                raise InvalidInput("option.range", f"must be a number from {low} to {high}, not {value!r}", field=field)
            if isinstance(_DEFAULTS[field], int) and not isinstance(value, int):
                raise InvalidInput("option.range", f"must be a whole number, not {value!r}", field=field)


_DEFAULTS = {field.name: field.default for field in fields(ForwardOptions)}
