"""Prints the events of each notification: sent at a site, retried, delivered, parked.

Scripts report their own notifications; all other events come from central's API, including notifications that the user
sent with `fieldpost send`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from fieldpost.core.delivery.holds import kind_of
from fieldpost.core.quantities import plural
from fieldpost.demo.central_api import CentralApi, moment
from fieldpost.demo.protocol import SentByScript
from fieldpost.demo.terminal import Terminal
from fieldpost.link.http.client import JsonObject

PAGE = 200
KNOWN_MAX = 5_000


@dataclass(slots=True)
class _Known:
    sent_at: datetime
    version: int | None = None
    """Version of central's record at the last printed event; None before it reached central."""


class Follower:
    """Remembers printed events and prints new ones."""

    def __init__(
        self, api: CentralApi, console_url: str, terminal: Terminal, arrived_at: Callable[[str], datetime | None]
    ) -> None:
        self._api = api
        self._console_url = console_url
        self._terminal = terminal
        self._arrived_at = arrived_at
        self._known: dict[str, _Known] = {}

    async def begin(self) -> None:
        """Skip the notifications of earlier runs, and print how many there are."""
        found = (await self._api.get("notifications", limit=PAGE))["notifications"]
        for one in found:
            self._remember(one["notification_id"], moment(one["created_at"]), one["version"])
        if found:
            parked = sum(one["status"] == "parked" for one in found)
            many = f"{PAGE} or more notifications" if len(found) == PAGE else plural(len(found), "notification")
            self._terminal.say(f"Continuing with {many} of earlier runs, {parked} of them parked.")

    def sent(self, sent: SentByScript) -> None:
        """A script has sent a notification."""
        if sent.notification_id not in self._known:
            self._print_sent(sent.notification_id, moment(sent.sent_at), sent.site, sent.subject, sent.list_name)

    async def poll(self) -> None:
        """Print the changes at central since the last poll. Raises FieldpostError."""
        page = await self._api.get("notifications", limit=PAGE)
        events = []
        for one in reversed(page["notifications"]):
            notification_id = one["notification_id"]
            if notification_id not in self._known:
                whole = await self._api.get("notifications", notification_id)
                sent_at = moment(whole["site_enqueued_at"] or whole["created_at"])
                # The parts of a submission to a list of lists were sent with it.
                submitted, list_name = one["whole_id"] or notification_id, one["whole_list"] or one["list_name"]
                if submitted not in self._known:
                    self._print_sent(submitted, sent_at, one["source_site"], one["subject"], list_name)
                self._known.setdefault(notification_id, _Known(sent_at))
            known = self._known[notification_id]
            if known.version != one["version"]:
                known.version = one["version"]
                events.append(self._event(one, known, moment(page["as_of"])))
        for at, site, word, text in sorted(event for event in events if event is not None):
            self._terminal.event(at, site, word, text)

    def _event(self, one: JsonObject, known: _Known, as_of: datetime) -> tuple[datetime, str, str, str] | None:
        """Time, site, kind and text of the event; None if there is nothing to print."""
        site, what, reason = one["source_site"], f"{one['subject']} → {one['list_name']}", one["last_error"]
        at = moment(one["last_attempt_at"] or one["created_at"])
        match one["status"]:
            case "delivered":
                arrived = self._arrived_at(one["notification_id"]) or moment(one["delivered_at"])
                seconds = max(0.0, (arrived - known.sent_at).total_seconds())
                tries = f", at attempt {one['attempt_count']}" if one["attempt_count"] > 1 else ""
                return arrived, site, "delivered", f"{what}: {seconds:.1f} s after sending{tries}"
            case "retrying":
                wait_s = (moment(one["next_attempt_at"]) - at).total_seconds()
                return at, site, "retrying", f"{what}: {reason}; again in {wait_s:.0f} s"
            case "parked":
                page = f"{self._console_url}/notifications/{one['notification_id']}"
                return at, site, "parked", f"{what}: {reason}\n{'':11}see {page}"
            case "pending" if one["held_by"]:
                kind = kind_of(one["held_by"]).value.replace("_", " ")
                return at, site, "held", f"{what}: by its {kind}"
            case "discarded":
                return as_of, site, "discarded", what
            case _:
                return None

    def _print_sent(self, notification_id: str, at: datetime, site: str, subject: str, list_name: str) -> None:
        self._remember(notification_id, at, None)
        self._terminal.event(at, site, "sent", f"{subject} → {list_name}")

    def _remember(self, notification_id: str, sent_at: datetime, version: int | None) -> None:
        self._known[notification_id] = _Known(sent_at, version)
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
