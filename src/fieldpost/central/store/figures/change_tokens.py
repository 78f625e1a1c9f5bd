"""Change tokens: texts that differ when the data on a page may have changed. A hint, and cheap to query."""

from collections.abc import Mapping

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import Statement

_notifications = Statement(
    """
    select
        (select event_id from audit order by occurred_at desc limit 1) as entry,
        (select sum(version) from breakers) as breakers,
        (select sum(done + conflicts + gone + stage) from bulk_actions where ended_at is null) as actions,
        (select max(created_at) from bulk_actions) as newest_action
    """
)
_sites = Statement(
    """
    select
        (select max(received_at) from site_health) as reported,
        (select max(received_at) from site_nodes) as node_reported,
        (select sum(epoch) from site_epochs) as epochs,
        (select sum(cursor + high + round) from site_mirrors) as mirrored,
        (select max(created_at) from intents) as given,
        (select sum(version) from intents where state in ('waiting', 'sent')) as moved,
        (select max(done_at) from intents where done_at is not null) as done
    """
)

_TOPICS: Mapping[str, Statement] = {"notifications": _notifications, "sites": _sites}


def marks(conn: Connection) -> dict[str, str]:
    """The token of each topic. Every action of a user adds an audit entry, which changes the notifications' token."""
    return {topic: repr(tuple(statement.run(conn)[0])) for topic, statement in _TOPICS.items()}
