"""The nodes of central: running, stopped or lost, and the leader."""

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
"""A node without a heartbeat for this long is lost; heartbeats are written every five seconds."""


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
    """All nodes, the newest first, and their leases."""

    nodes: Sequence[Node]
    leases: Mapping[str, Lease]
    as_of: datetime

    @property
    def leader(self) -> str | None:
        """The node that holds the leader's lease, or None."""
        lease = self.leases.get(LEADER)
        return lease.owner if lease is not None and lease.lease_until > self.as_of else None


class Nodes:
    """Reads the nodes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> Centre:
        return await self._store.read(read_nodes, now=self._store.now())


def read_nodes(conn: Connection, *, now: datetime | None) -> Centre:
    """All nodes and leases, judged by the database's clock."""
    as_of = database_time(conn, now)
    without_nodes = Centre((), {lease.name: lease for lease in leases.all_leases(conn)}, as_of)
    found = [
        Node(record, state_of(record, as_of), record.node_id == without_nodes.leader)
        for record in nodes.all_nodes(conn)
    ]
    return Centre(tuple(reversed(found)), without_nodes.leases, as_of)


def state_of(node: NodeRecord, now: datetime) -> NodeState:
    if node.stopped_at is not None:
        return NodeState.STOPPED
    return NodeState.LOST if now - node.heartbeat_at > LOST_AFTER else NodeState.RUNNING
