"""Limits and faults of mail servers, learned from their replies and remembered for an hour.

They decide how a mail is sent, never whether: the number of recipients per transaction, and whether commands are
pipelined. An hour later the adapter tries again without them, since a server may have been repaired. Each node learns
for itself, at the cost of one more connection.
"""

from dataclasses import dataclass

from fieldpost.clock import Clock

LEARNED_S = 3600.0
RECIPIENTS_MAX = 100
"""Recipients per transaction; every server must accept this number (RFC 5321)."""

ServerKey = tuple[str, int, str | None]


@dataclass(slots=True)
class ServerTraits:
    """The known traits of one server."""

    until: float
    """The monotonic time until which it holds."""
    recipients_max: int = RECIPIENTS_MAX
    ignores_pipelining: bool = False
    """It offers PIPELINING but answers only the first of several commands."""
    has_pipelined: bool = False
    """It has answered pipelined commands."""

    def accepts_at_most(self, count: int) -> None:
        self.recipients_max = max(1, min(self.recipients_max, count))


class ServerMemory:
    """The traits of all servers that an adapter has sent to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._traits: dict[ServerKey, ServerTraits] = {}

    def of(self, server: ServerKey) -> ServerTraits:
        now = self._clock.monotonic()
        traits = self._traits.get(server)
        if traits is None or traits.until <= now:
            traits = self._traits[server] = ServerTraits(now + LEARNED_S)
        return traits

    def describe(self, server: ServerKey) -> list[str]:
        """One sentence for each trait that slows delivery down."""
        traits = self.of(server)
        found = []
        if traits.ignores_pipelining:
            found.append(
                "the server offers PIPELINING but does not answer pipelined commands, so this node sends it one command"
                " at a time; set pipelining to off to skip the trial that is made every hour"
            )
        if traits.recipients_max < RECIPIENTS_MAX:
            found.append(
                f"the server seems to accept at most {traits.recipients_max} recipient(s) per message, so this node"
                " sends a notification to more of them in several messages"
            )
        return found
