"""Leases: which node does the work that only one node should do, and until when, by the database's clock."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.records import Records
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.node_tables import leases

LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    owner: str
    lease_until: datetime
    token: int
    """Grows with every change of the owner."""


_LEASES = Records(leases, Lease)

# Compare-and-set in one statement: the owner renews the lease, any other node takes it once it has expired.
_take = Statement(
    """
    insert into leases (name, owner, lease_until, token) values (:name, :owner, {now+lease_s}, 1)
    on conflict (name) do update set owner = excluded.owner, lease_until = excluded.lease_until,
        token = leases.token + case when leases.owner = excluded.owner then 0 else 1 end
    where leases.owner = excluded.owner or leases.lease_until <= {now}
    returning name, owner, lease_until, token
    """,
    result=_LEASES.types,
)
_release = Statement("update leases set lease_until = {now} where name = :name and owner = :owner")
_void = Statement("update leases set lease_until = {now} where lease_until > {now}")


def take(conn: Connection, name: str, owner: str, *, lease_s: float, now: datetime | None) -> Lease | None:
    """Take or renew the lease for this owner; None while another owner has it."""
    found = _take.run(conn, name=name, owner=owner, lease_s=lease_s, now=now)
    return _LEASES.of(found[0]) if found else None


def release(conn: Connection, name: str, owner: str, *, now: datetime | None) -> None:
    """End the lease now, if this owner has it."""
    _release.run(conn, name=name, owner=owner, now=now)


def void_all(conn: Connection, *, now: datetime | None) -> None:
    """End every lease now: on SQLite a new process knows that no other process is left."""
    _void.run(conn, now=now)


def all_leases(conn: Connection) -> list[Lease]:
    return _LEASES.all(conn, by=[leases.c.name])
