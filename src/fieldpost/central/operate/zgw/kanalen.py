"""Kanalen of the ZGW API: topics that its clients create and change."""

from dataclasses import replace
from uuid import uuid4

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, commit, present, record
from fieldpost.central.store.events import topics as rows
from fieldpost.central.store.notifications import audit
from fieldpost.core.actor import ZGW_CLIENT, Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict
from fieldpost.core.events.audience import RESERVED
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import is_id
from fieldpost.core.zgw.abonnement import KanaalFields
from fieldpost.core.zgw.client import ZgwClient
from fieldpost.core.zgw.fields import invalid
from fieldpost.core.zgw.token import refuse


class Kanalen(Actions):
    """Actions of ZGW clients on kanalen. The scope was checked."""

    async def all(self, name: str | None = None) -> list[Topic]:
        """Kanalen by name, without archived ones; with a name, that one alone."""
        found = await self._store.read(rows.all_topics)
        return [one for one in found if _is_open(one) and name in (None, one.name)]

    async def get(self, kanaal_id: str) -> Topic:
        found = None
        if is_id(kanaal_id):
            found = next((one for one in await self.all() if one.kanaal_id == kanaal_id), None)
        return present(found, "kanaal", kanaal_id)

    async def add(self, client: ZgwClient, given: KanaalFields) -> Topic:
        """Add a kanaal. InvalidParams if a topic has its name."""
        assert given.naam is not None, "the name was required"
        check_may_publish(client, given.naam)
        if given.naam.startswith(RESERVED):
            raise invalid("naam", "invalid", f"must not begin with {RESERVED}, which is for Fieldpost's own topics")
        kanaal = Topic(
            name=given.naam,
            attributes=given.filters or (),
            kanaal_id=str(uuid4()),
            documentation_url=given.documentatie_link or None,
        )
        entry = record(actor_of(client), "kanaal.add", kanaal.name, self._clock.now())
        try:
            await commit(self._store, f"kanaal {kanaal.name!r}", _add, kanaal, entry)
        except Conflict:
            raise _exists(kanaal.name) from None
        return kanaal

    async def change(self, client: ZgwClient, kanaal_id: str, given: KanaalFields, *, is_partial: bool) -> Topic:
        """Change link and filters; a PUT resets those that are not given. The name is fixed."""
        seen = await self.get(kanaal_id)
        check_may_publish(client, seen.name)
        if given.naam not in (None, seen.name):
            raise invalid("naam", "wijzigen-niet-toegelaten", "the name of a kanaal cannot be changed")
        link = seen.documentation_url if given.documentatie_link is None and is_partial else given.documentatie_link
        filters = seen.attributes if given.filters is None and is_partial else given.filters or ()
        wanted = replace(seen, documentation_url=link or None, attributes=filters)
        entry = record(actor_of(client), "kanaal.change", seen.name, self._clock.now())
        await commit(self._store, f"kanaal {seen.name!r}", _change, wanted, entry)
        return wanted


def actor_of(client: ZgwClient) -> Actor:
    """The client as audit entries name it; its role reaches its own subscriptions alone."""
    return Actor(ZGW_CLIENT + client.client_id, Role.SUBSCRIBER, subscription_owner=client.client_id)


def check_may_publish(client: ZgwClient, kanaal: str) -> None:
    """Denied unless the client may publish on the kanaal."""
    if not client.may_publish_on(kanaal):
        denied = refuse("permission_denied", f"this client may not publish on the kanaal {kanaal!r}")
        denied.actor = client.client_id
        raise denied


def _is_open(topic: Topic) -> bool:
    return topic.kanaal_id is not None and topic.archived_at is None


def _exists(name: str) -> Exception:
    return invalid("naam", "unique", f"there is a kanaal or topic named {name!r} already")


def _add(conn: Connection, kanaal: Topic, entry: AuditEntry) -> None:
    if rows.get(conn, kanaal.name) is not None:
        raise _exists(kanaal.name)
    rows.add(conn, kanaal, entry.occurred_at)
    audit.add(conn, [entry])


def _change(conn: Connection, wanted: Topic, entry: AuditEntry) -> None:
    if not rows.change(conn, wanted, entry.occurred_at):
        raise Conflict("kanaal.changed", f"kanaal {wanted.name!r} was changed at the same time", hint="try again")
    audit.add(conn, [entry])
