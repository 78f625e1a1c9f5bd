"""The nodes of the centre: who runs, who stopped, who was lost, and who leads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures import leases, nodes
from fieldpost.central.store.figures.leases import LEADER, Lease
from fieldpost.central.store.figures.nodes import NodeRecord

LOST_AFTER = timedelta(seconds=20)
"""A node that was not heard of for so long is lost: it says that it lives every five seconds."""


class NodeState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Node:
    record: NodeRecord
    state: NodeState
    is_leader: bool


@dataclass(frozen=True, slots=True)
class Centre:
    """All nodes, the newest first, and the leases they share."""

    nodes: Sequence[Node]
    leases: Mapping[str, Lease]
    as_of: datetime

    @property
    def leader(self) -> str | None:
        """The node that leads; None when the lease has run out or nobody ever had it."""
        lease = self.leases.get(LEADER)
        return lease.owner if lease is not None and lease.lease_until > self.as_of else None


class Nodes:
    """Looking at the nodes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> Centre:
        return await self._store.read(look, now=self._store.now())


def look(conn: Connection, *, now: datetime | None) -> Centre:
    """All nodes and leases, judged by the database's clock."""
    as_of = database_time(conn, now)
    found = Centre((), {lease.name: lease for lease in leases.all_leases(conn)}, as_of)
    seen = [Node(record, state_of(record, as_of), record.node_id == found.leader) for record in nodes.all_nodes(conn)]
    return Centre(tuple(reversed(seen)), found.leases, as_of)


def state_of(node: NodeRecord, now: datetime) -> NodeState:
    if node.stopped_at is not None:
        return NodeState.STOPPED
    return NodeState.LOST if now - node.heartbeat_at > LOST_AFTER else NodeState.RUNNING
