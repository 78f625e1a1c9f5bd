"""Runs in your application. Imports: core, link, clock; works on the connection it is given.

from fieldpost.outbox import Outbox
from fieldpost.outbox import Relay, RelayOptions     a relay as a thread of the application; loaded on first use
"""

from typing import TYPE_CHECKING, Any

from fieldpost.outbox.outbox import Outbox

if TYPE_CHECKING:
    from fieldpost.outbox.relay.background import Relay
    from fieldpost.outbox.relay.options import RelayOptions

__all__ = ["Outbox", "Relay", "RelayOptions"]


def __getattr__(name: str) -> Any:
    if name == "Relay":
        from fieldpost.outbox.relay.background import Relay

        return Relay
    if name == "RelayOptions":
        from fieldpost.outbox.relay.options import RelayOptions

        return RelayOptions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
