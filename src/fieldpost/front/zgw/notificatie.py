"""`notificaties`: publish a notification."""

import os

from fieldpost.central.operate.zgw.kanalen import check_may_publish
from fieldpost.core.ids import new_id
from fieldpost.core.zgw.fields import invalid
from fieldpost.core.zgw.notification import read_notification, repeatable_id, source_of
from fieldpost.front.allowance import LinkKind
from fieldpost.front.zgw.call import ZgwCall
from fieldpost.link.messages import REJECTED

CONFLICT = "event.conflict"


async def create(call: ZgwCall) -> bytes:
    """Record the notification as an event; the answer repeats it byte for byte."""
    data, value = await call.body()
    now = call.clock.now()
    read = read_notification(value, now)
    client_id = call.client.client_id
    check_may_publish(call.client, read.kanaal)
    source = source_of(client_id)
    if call.options.merge_repeats:
        event_id = repeatable_id(client_id, value, read.aanmaakdatum)
    else:
        event_id = new_id(now, os.urandom(10))
    allowances = call.backend.allowances
    allowances.check(source, LinkKind.DATA)
    allowances.charge(source, LinkKind.DATA, items=1, bytes=len(data))
    event = read.event(event_id, source, data.decode())
    (verdict,) = await call.backend.ingest.publisher.publish(source, [event])
    # The id identifies client and content: only the order of keys or the spaces differ.
    if verdict.verdict == REJECTED and verdict.code != CONFLICT:
        if verdict.field is None:
            raise invalid("kanaal", "message_kanaal", verdict.error or "the kanaal does not accept notifications")
        raise invalid(verdict.field, str(verdict.code).removeprefix("zgw."), str(verdict.error))
    return data
