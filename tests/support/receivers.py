"""Subscriptions for tests, and an adapter of type `webhook` that posts to them over the guarded client."""

import os
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection
from yarl import URL

from fieldpost.central.store.events import subscriptions
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.outcome import Delivered, Evidence, Held, Outcome, TransientFailure, Uncertain
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription, subscription_key
from fieldpost.core.ids import new_id
from fieldpost.outbound.client import NoAnswer
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.progress import HttpPhase
from support.centre import Centre
from support.plans import fill


async def subscribe(centre: Centre, urls: Mapping[str, str], rows: int = 1) -> dict[str, str]:
    """Subscriptions of these names and URLs, each with so many due notifications; their delivery keys by name."""
    now = centre.clock.now()
    made = [
        Subscription(
            subscription_id=new_id(now, os.urandom(10)),
            name=name,
            owner="team",
            filter=(FilterEntry(),),
            settings={"url": url},
        )
        for name, url in urls.items()
    ]

    def add(conn: Connection, all_of_them: Sequence[Subscription]) -> None:
        for one in all_of_them:
            subscriptions.add(conn, one, now)
            fill(conn, one.name, rows, delivery_key=subscription_key(one.subscription_id))

    await centre.store.write(add, made)
    return {one.name: subscription_key(one.subscription_id) for one in made}


class PostingAdapter:
    """Posts over the guarded client. A name that is not resolved holds on our side; a status but 2xx is counted."""

    type = "webhook"
    secrets: frozenset[str] = frozenset()

    def __init__(self, outbound: Outbound, deadline_s: float = 60.0) -> None:
        self.deadline_s = deadline_s
        self.answered: list[str] = []
        """The names of the subscriptions whose receivers answered, in order."""
        self._outbound = outbound

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        return dict(settings)

    def check_target(self, address: str) -> str:
        return address

    def target_key(self, address: str) -> str:
        return address

    async def deliver(self, envelope: Envelope) -> Outcome:
        url = URL(str(envelope.settings["url"]))
        envelope.gate()
        try:
            answer = await self._outbound.strict_http.request(
                "POST", url, headers={}, body=b"{}", timeout_s=self.deadline_s
            )
        except Blocked as error:
            return Held(str(error), phase="resolve", kind=HoldKind.OUR_SIDE, evidence=Evidence.NONE)
        except NoAnswer as error:
            if error.phase in (HttpPhase.QUEUE, HttpPhase.RESOLVE):
                return Held(error.reason, phase=error.phase, kind=HoldKind.OUR_SIDE, evidence=Evidence.NONE)
            if error.is_sent:
                return Uncertain(error.reason, phase=error.phase, evidence=Evidence.FAILS)
            return TransientFailure(error.reason, phase=error.phase, evidence=Evidence.FAILS)
        self.answered.append(envelope.list_name)
        if 200 <= answer.status < 300:
            return Delivered()
        return TransientFailure(f"answered {answer.status}", evidence=Evidence.FAILS)

    async def close(self) -> None:
        pass
