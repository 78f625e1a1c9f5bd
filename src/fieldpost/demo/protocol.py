"""What passes between the demo and its processes: each gets its part as one line of JSON, and reports in such lines.

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
    """Whether another port will do when this one is taken."""


class AgentPart(msgspec.Struct, frozen=True, tag="agent", forbid_unknown_fields=True):
    folder: str


class ScriptPart(msgspec.Struct, frozen=True, tag="script", forbid_unknown_fields=True):
    folder: str
    site: str
    first_s: float
    """How long to wait before the first one."""
    pause_s: float


DemoPart = CentralPart | AgentPart | ScriptPart


class Serves(msgspec.Struct, frozen=True, tag="serves"):
    """Central is up."""

    url: str
    token_file: str
    """Holds the API token that the first start made, unless that was for another folder."""


class SentByScript(msgspec.Struct, frozen=True, tag="sent"):
    """A script has sent; the id is what `send()` returned."""

    notification_id: str
    site: str
    list_name: str
    subject: str
    sent_at: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The process ends, since this is wrong; starting it again would not help."""

    text: str


Report = Serves | SentByScript | Failed
