"""`/nodes`: the nodes of the centre."""

import msgspec

from fieldpost.central.watch.nodes import Node
from fieldpost.core.times import to_text
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.front.http.endpoint_spec import spec


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    node_id: str
    state: str
    is_leader: bool
    host: str
    version: str
    started_at: str
    heartbeat_at: str
    stopped_at: str | None


class NodesView(msgspec.Struct, frozen=True):
    nodes: list[NodeView]
    leader: str | None
    as_of: str


@spec(NodesView)
async def show_all(call: Call) -> ApiAnswer:
    """The nodes, the newest first: running, stopped in order, or lost (not heard of for 20 s); and who leads."""
    call.query()
    found = await call.watch.nodes.all()
    return ApiAnswer(NodesView([_view(node) for node in found.nodes], found.leader, to_text(found.as_of)))


def _view(node: Node) -> NodeView:
    record = node.record
    return NodeView(
        node_id=record.node_id,
        state=node.state.value,
        is_leader=node.is_leader,
        host=record.host,
        version=record.version,
        started_at=to_text(record.started_at),
        heartbeat_at=to_text(record.heartbeat_at),
        stopped_at=to_text(record.stopped_at) if record.stopped_at else None,
    )
