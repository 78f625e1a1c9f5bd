"""`/nodes`: the nodes of central."""

from fieldpost.central.watch.nodes import Centre, Node
from fieldpost.front.http.call import Call
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.view import View, ViewField, within

NODE = View(
    "NodeView",
    Node,
    "node_id=record.node_id state is_leader",
    within("record", "host version started_at heartbeat_at stopped_at"),
)
NODES = View("NodesView", Centre, ViewField("nodes", view=NODE), "leader as_of")


@spec(NODES)
async def show_all(call: Call) -> Centre:
    """List the nodes, newest first, as running, stopped or lost (no heartbeat for 20 s), and name the leader."""
    return await call.watch.nodes.all()
