"""One-time login links, and the delays after failed logins, which all nodes share."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Integer, Text, select, update

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.engine.purging import DatedTable
from fieldpost.central.store.engine.records import Records
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.account_tables import login_links
from fieldpost.core.login import Patience, Tally, charged, given_back


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """A one-time link as stored: its digest, never the link."""

    prefix: str
    digest: bytes
    user_name: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None = None


_LINKS = Records(login_links, LinkRecord)

# Insert the row before locking it, so that the first two attempts at a name are serialized like all later ones. A login
# that has to wait inserts none: otherwise anybody could fill the table with names.
_ensure = Statement(
    """
    insert into login_delays (key, failures, failed_at, free_at)
    select u.key, 0, {now}, {now} from {rows} where true on conflict (key) do nothing
    """,
    rows={"key": "text"},
)
_READ = "select key, failures, failed_at, free_at from login_delays where key {any:keys} order by key"
_lock = Statement(
    f"{_READ} for update",
    sqlite=_READ,
    lists={"keys": "text"},
    result={"key": Text, "failures": Integer, "failed_at": Moment, "free_at": Moment},
)
_put = Statement(
    """
    update login_delays set failures = u.failures, failed_at = u.failed_at, free_at = u.free_at
    from {rows} where login_delays.key = u.key
    """,
    rows={"key": "text", "failures": "int", "failed_at": "moment", "free_at": "moment"},
)
_forget = Statement("delete from login_delays where key = :key")
_forget_account = Statement("delete from login_delays where key = :account or key like :account || '@%'")

DELAYS = DatedTable("login_delays", "failed_at")
LINKS = DatedTable("login_links", "expires_at")


def charge(conn: Connection, patience: Mapping[str, Patience], now: datetime, network: str | None = None) -> timedelta:
    """Count a login as failed before its password is checked; or, if one of the keys has to wait, return how long.

    A successful login is given back afterwards: so even of many simultaneous attempts none is tried uncounted. During a
    wait only the key of the network is charged, unless it waits itself.
    """
    if (wait := _wait(_locked(conn, patience), now)) == timedelta(0):
        _ensure.run(conn, [(key,) for key in sorted(patience)], now=now)
        tallies = _locked(conn, patience)
        if (wait := _wait(tallies, now)) == timedelta(0):
            _write(conn, {key: charged(tally, patience[key], now) for key, tally in tallies.items()})
            return wait
    if network is not None:
        _ensure.run(conn, [(network,)], now=now)
        tallies = _locked(conn, [network])
        if _wait(tallies, now) == timedelta(0):
            _write(conn, {network: charged(tallies[network], patience[network], now)})
    return wait


def _wait(tallies: Mapping[str, Tally], now: datetime) -> timedelta:
    return max((tally.wait(now) for tally in tallies.values()), default=timedelta(0))


def succeeded(conn: Connection, own: str, others: Collection[str], now: datetime) -> None:
    """Clear the failures of the user's own key, and give back one attempt of the other keys. No more than one: a user
    must not be able to clear a network from which they try other accounts."""
    _forget.run(conn, key=own)
    give_back(conn, others, now)


def give_back(conn: Connection, keys: Collection[str], now: datetime) -> None:
    """Give back one attempt of each key; a key without failures is removed."""
    tallies = {key: given_back(tally, now) for key, tally in _locked(conn, keys).items()}
    for key in [key for key, tally in tallies.items() if not tally.failures]:
        del tallies[key]
        _forget.run(conn, key=key)
    _write(conn, tallies)


def forget_account(conn: Connection, account: str) -> None:
    """Clear the failures of this account from all networks."""
    _forget_account.run(conn, account=account)


def add_link(conn: Connection, link: LinkRecord) -> None:
    """Add a link; it replaces any earlier link of the user."""
    end_links(conn, link.user_name, link.created_at)
    _LINKS.add(conn, link)


def get_link(conn: Connection, prefix: str) -> LinkRecord | None:
    return _LINKS.first(conn, login_links.c.prefix == prefix)


def use_link(conn: Connection, prefix: str, now: datetime) -> bool:
    """Use the link once; False if it was used already or has expired."""
    used = update(login_links).where(
        login_links.c.prefix == prefix, login_links.c.ended_at.is_(None), login_links.c.expires_at > now
    )
    return conn.execute(used.values(ended_at=now)).rowcount == 1


def end_links(conn: Connection, user_name: str, now: datetime) -> None:
    ended = update(login_links).where(login_links.c.user_name == user_name, login_links.c.ended_at.is_(None))
    conn.execute(ended.values(ended_at=now))


def has_link(conn: Connection, now: datetime) -> bool:
    """Whether a usable link exists."""
    live = select(login_links.c.prefix).where(login_links.c.ended_at.is_(None), login_links.c.expires_at > now)
    return conn.execute(live.limit(1)).first() is not None


def _locked(conn: Connection, keys: Iterable[str]) -> dict[str, Tally]:
    rows = _lock.run(conn, keys=sorted(keys))
    return {row.key: Tally(row.failures, row.failed_at, row.free_at) for row in rows}


def _write(conn: Connection, tallies: Mapping[str, Tally]) -> None:
    _put.run(conn, [(key, tally.failures, tally.failed_at, tally.free_at) for key, tally in tallies.items()])
