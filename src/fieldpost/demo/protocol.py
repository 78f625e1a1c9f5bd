"""Messages between the demo and its processes: each gets its part as one line of JSON, and reports in JSON lines.

By standard input and output rather than by arguments: a store's URL may hold a password, and arguments can be read by
every user of the machine.
"""

import msgspec


class CentralPart(msgspec.Struct, frozen=True, tag="central", forbid_unknown_fields=True):
    folder: str
    login_file: str
    store: str
    """A URL; empty for a SQLite file in the folder."""
    port: int
    may_move: bool
    """Whether to take another port if this one is in use."""
    trust_file: str
    """The certificate of the demo's providers."""


class AgentPart(msgspec.Struct, frozen=True, tag="agent", forbid_unknown_fields=True):
    folder: str


class ScriptPart(msgspec.Struct, frozen=True, tag="script", forbid_unknown_fields=True):
    folder: str
    site: str
    first_s: float
    """Delay before the first notification."""
    pause_s: float


DemoPart = CentralPart | AgentPart | ScriptPart


class Serves(msgspec.Struct, frozen=True, tag="serves"):
    """Central is running."""

    url: str
    token_file: str
    """File of the API token that the first start created, if that was in this folder."""


class SentByScript(msgspec.Struct, frozen=True, tag="sent"):
    """A script has sent a notification; the id is the return value of `send()`."""

    notification_id: str
    site: str
    list_name: str
    subject: str
    sent_at: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The process ends for this reason; a restart would not help."""

    text: str


Report = Serves | SentByScript | Failed
