"""What the front allows a caller, and for how long."""

from dataclasses import dataclass, fields

from fieldpost.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """[front]"""

    connections_max: int = 4000
    """How many connections may be open at once; further ones are turned away with 503."""
    connections_per_site: int = 8
    """How many of them one site's link may use; further ones are turned away with 429."""
    header_s: float = 10.0
    """How long a request's head may take."""
    body_grace_s: float = 30.0
    """How long a body or a frame may take beside the time that its bytes need at 500 a second."""
    items_per_s: float = 10_000.0
    """How many items a site may submit for long; what is beyond is put off, and the site keeps it."""
    bytes_per_s: float = 16 * 1024 * 1024.0
    """The same in bytes."""
    burst_s: float = 10.0
    """How many seconds' worth of items and bytes may come at once."""

    def __post_init__(self) -> None:
        for one in fields(self):
            if not getattr(self, one.name) > 0:
                raise ConfigError("settings.range", f"front.{one.name} must be above 0", field=f"front.{one.name}")
