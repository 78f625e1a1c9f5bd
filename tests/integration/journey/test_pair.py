"""A pair with central, as processes: a command that the frozen leader has, and its successor applies, once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fieldpost import Site
from fieldpost.testing import HttpServerThread
from support.node_process import NodeProcess, definitions
from support.ports import free_port
from support.running_central import RunningCentral, call, until
from support.site_pair import SITE, make_node, make_pair

TAKEOVER_S = 60.0
"""A lease, the silence before it, and a busy machine."""
PARKING = '\n[external.crm]\nurl = "{url}"\ntimeout_s = 5\nretry_interval_s = 0.2\nretries_max = 1\n'


@dataclass
class PairRun:
    """Central and both nodes."""

    central: RunningCentral
    nodes: tuple[NodeProcess, ...] = ()

    async def api(self, method: str, path: str, body: object = None) -> Any:
        token = (self.central.folder / "api-token").read_text().strip()
        return await call(self.central, token, method, path, body)

    async def executing(self, *nodes: NodeProcess) -> NodeProcess | None:
        """The one of these nodes that executes now and leads according to central."""
        shown = (await self.api("GET", f"site-health/{SITE}"))["site"]["nodes"]
        leads = {one["node"] for one in shown if one["role"] == "leader"}
        for node in nodes:
            if node.node.node in leads and await node.executes():
                return node
        return None

    async def mirrored(self, call_id: str) -> str | None:
        """The status of the call in central's mirror."""
        found = (await self.api("GET", f"cached-calls?site={SITE}"))["cached_calls"]
        return next((str(one["status"]) for one in found if one["call_id"] == call_id), None)

    async def received(self) -> set[str]:
        """The notifications that central has."""
        return {str(one["notification_id"]) for one in (await self.api("GET", "notifications"))["notifications"]}

    def status(self, node: NodeProcess, call_id: str) -> object:
        """The status of the call in the node's tracking table."""
        found = node.node.rows(f"SELECT status FROM tracking WHERE call_id = '{call_id}'")
        return found[0][0] if found else None


@asynccontextmanager
async def pair_run(store_url: str, folder: Path) -> AsyncIterator[PairRun]:
    """A pair whose calls to `crm` are refused, and parked after one retry."""
    async with RunningCentral(store_url, folder / "central", port=free_port()) as central:
        run = PairRun(central)
        tokens = [
            (await run.api("POST", "sites", {"name": SITE}))["token"],
            (await run.api("POST", f"sites/{SITE}/add-node", {}))["token"],
        ]
        with HttpServerThread() as crm:
            crm.on().answer(503)
            more = definitions(crm.url) + PARKING.format(url=crm.url)
            first, second = (make_node(folder / f"n{n}", n, central.url, tokens[n], more) for n in (0, 1))
            await make_pair(first, second)
            async with NodeProcess(first) as one, NodeProcess(second) as two:
                run.nodes = one, two
                yield run


def order(node: NodeProcess) -> str:
    with Site.open(node.node.path) as site:
        return site.external("crm").call("POST", "/orders", json={"part": "seal"})


async def is_so(value: Any, wanted: object) -> bool:
    return bool(await value == wanted)


@pytest.mark.req("DEC-38", "TEL-09", "TEL-10", "TEL-12")
async def test_command_of_a_frozen_leader_is_applied_once_by_its_successor(sqlite_url: str, tmp_path: Path) -> None:
    async with pair_run(sqlite_url, tmp_path) as run:
        leader: NodeProcess = await until(lambda: run.executing(*run.nodes), TAKEOVER_S, "a leader")
        [standby] = [node for node in run.nodes if node is not leader]
        call_id = await asyncio.to_thread(order, leader)
        sent = {node.node.send() for node in run.nodes}
        await until(lambda: is_so(run.received(), sent), TAKEOVER_S, "the notifications of both nodes")
        await until(lambda: is_so(run.mirrored(call_id), "parked"), TAKEOVER_S, "the parked call in the mirror")
        await until(lambda: run.status(standby, call_id) == "parked", TAKEOVER_S, "the copy")

        leader.freeze()
        body = {"site": SITE, "kind": "discard", "message_ids": [call_id]}
        [given] = (await run.api("POST", "intents", body))["intents"]

        async def state() -> str:
            return str((await run.api("GET", f"intents/{given['intent_id']}"))["state"])

        await until(lambda: is_so(state(), "sent"), TAKEOVER_S, "the command to be sent to the frozen leader")
        await until(lambda: run.executing(standby), TAKEOVER_S, "the standby to lead")
        await until(lambda: is_so(state(), "done"), TAKEOVER_S, "the answer of the new leader")
        await until(lambda: is_so(run.mirrored(call_id), "discarded"), TAKEOVER_S, "the end of the call in the mirror")
        assert run.status(standby, call_id) == "discarded"

        # The former leader has the command in its socket. It does not lead any more, and follows.
        leader.thaw()
        await until(lambda: run.status(leader, call_id) == "discarded", TAKEOVER_S, "the former leader to follow")
        found = await run.api("GET", f"intents/{given['intent_id']}")
        assert (found["state"], found["outcome"]) == ("done", "applied")
        assert found["attempts"] >= 2
        discarded = f"SELECT count(*) FROM events WHERE message_id = '{call_id}' AND kind = 'discarded'"
        assert [node.node.rows(discarded) for node in (leader, standby)] == [[(0,)], [(1,)]], "applied once"
        site = await run.api("GET", f"site-health/{SITE}")
        assert [one["cause"] for one in site["switches"]] == ["granted", "granted"]
        assert site["site"]["mirror"]["replaced_count"] == 0, "nothing was read again"
        assert run.central.surprises() == []
