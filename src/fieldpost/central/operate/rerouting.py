"""Effects of a changed or tested channel, or of a changed list, on breakers, waiting notifications and secrets."""

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.central.store.notifications import lists as rows
from fieldpost.core.delivery.breaker import channel_key, note_tried, probe_now
from fieldpost.core.delivery.destination import redirected_lists
from fieldpost.core.delivery.routing import Directory, moved_keys
from fieldpost.core.errors import InvalidInput

SECRETS_NAMED = 5


def check_redirected(conn: Connection, before: Directory, adapters: Mapping[str, object]) -> None:
    """Raise InvalidInput if a change of channels sends stored secrets of targets to another place."""
    redirected = redirected_lists(before, rows.directory(conn), adapters)
    for name, secrets in sorted(rows.target_secrets(conn, redirected).items()):
        error = secrets_again(name, secrets)
        hint = "add a channel with the new settings, not as the default, and give it to this list with these secrets"
        raise InvalidInput(error.code, error.message, hint=hint)


def check_redirected_list(
    conn: Connection, before: Directory, adapters: Mapping[str, object], name: str, given: Collection[str]
) -> None:
    """Raise InvalidInput if a change of this list sends secrets to another place that were not given with it."""
    redirected = redirected_lists(before, rows.directory(conn), adapters)
    if kept := rows.target_secrets(conn, redirected).get(name, {}).keys() - set(given):
        raise secrets_again(name, kept)


def secrets_again(list_name: str, kept: Collection[str]) -> InvalidInput:
    """The error for a list that would send these secrets of its targets to another place."""
    labels = sorted(kept)
    shown = ", ".join(labels[:SECRETS_NAMED]) + (" and others" if len(labels) > SECRETS_NAMED else "")
    return InvalidInput(
        "list.secrets_again",
        f"list {list_name!r}: the secrets of its targets must be given again, because they would be sent to another"
        f" place: {shown}",
        hint="give the secrets of these targets with the change",
        field=f"secrets.{labels[0]}",
    )


def release_rerouted(conn: Connection, before: Directory, *, now: datetime | None) -> None:
    """Release notifications held behind the breaker of a channel that their list no longer uses."""
    for breaker_key, keys in moved_keys(before, rows.directory(conn)).items():
        breaker_rows.free_keys(conn, keys, breaker_key, now=now)


def probe_soon(conn: Connection, channel_name: str, *, now: datetime | None) -> None:
    """Make the breaker of a changed channel due for a probe: the channel may work again."""
    key = channel_key(channel_name)
    if key in breaker_rows.load(conn, [key]):
        at = database_time(conn, now)
        breaker_rows.change(conn, key, lambda breaker: probe_now(breaker, at))


def mark_tried(conn: Connection, channel_name: str) -> None:
    """Give the channel's breaker a row, since a test has succeeded; its state does not change."""
    breaker_rows.change(conn, channel_key(channel_name), note_tried)
