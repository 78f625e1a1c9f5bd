"""Central nodes and their heartbeats; each start of a node has a new id."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.records import Records
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.node_tables import nodes


@dataclass(frozen=True, slots=True)
class NodeRecord:
    node_id: str
    host: str
    version: str
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None


_start = Statement(
    """
    insert into nodes (node_id, host, version, started_at, heartbeat_at)
    values (:node_id, :host, :version, {now}, {now})
    """
)
_beat = Statement("update nodes set heartbeat_at = {now} where node_id = :node_id")
_stop = Statement("update nodes set heartbeat_at = {now}, stopped_at = {now} where node_id = :node_id")
_close_others = Statement("update nodes set stopped_at = heartbeat_at where stopped_at is null and node_id <> :node_id")


def start(conn: Connection, node_id: str, host: str, version: str, *, now: datetime | None) -> None:
    _start.run(conn, node_id=node_id, host=host, version=version, now=now)


def beat(conn: Connection, node_id: str, *, now: datetime | None) -> None:
    _beat.run(conn, node_id=node_id, now=now)


def stop(conn: Connection, node_id: str, *, now: datetime | None) -> None:
    _stop.run(conn, node_id=node_id, now=now)


def close_others(conn: Connection, node_id: str) -> None:
    """Mark all other nodes as stopped at their last heartbeat: an embedded store has only this node."""
    _close_others.run(conn, node_id=node_id)


def all_nodes(conn: Connection) -> list[NodeRecord]:
    return Records(nodes, NodeRecord).all(conn, by=[nodes.c.started_at])
