"""The commands about sites' calls and intents, as real processes; a site's real commands answer them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from fieldpost import Site
from fieldpost.clock import SystemClock
from fieldpost.site.config.folder import read_folder
from fieldpost.site.config.options import ReportOptions
from fieldpost.site.forwarding.forwarder import ForwardHealth
from fieldpost.site.reporting.control import Control
from support.calls import Calls
from support.centre import SITE
from support.commands import Cli
from support.running_central import until

QUICK = ReportOptions(health_interval_s=0.2, poll_s=0.05, reconnect_interval_s=0.05)


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[Calls]:
    (tmp_path / "site").mkdir()
    opened = Calls(tmp_path / "site" / "buffer.db", SystemClock())
    yield opened
    opened.close()


@asynccontextmanager
async def connected(cli: Cli, calls: Calls) -> AsyncIterator[None]:
    """The site's agent on its control connection, and central's command_sender."""
    folder = calls.path.parent
    Site.create(folder, SITE, cli.url, cli.front.tokens["site"]).close()
    control = Control(read_folder(folder), calls.buffer, ForwardHealth, SystemClock(), Random(1), options=QUICK)
    stopping = asyncio.Event()
    running = asyncio.create_task(control.run(stopping))
    command_sender = asyncio.create_task(cli.front.commands.run())
    try:
        yield
    finally:
        command_sender.cancel()
        stopping.set()
        await asyncio.gather(running, command_sender, return_exceptions=True)


@pytest.mark.req("TEL-06", "TEL-07", "TEL-08")
async def test_parked_calls_are_listed_queried_retried_and_discarded(cli: Cli, calls: Calls) -> None:
    one, two = calls.parked(), calls.parked("mes")
    async with connected(cli, calls):
        asked = await cli("cached-calls", "parked", SITE, role="operator")
        assert [line.split()[0] for line in asked.out.splitlines()[1:]] == [one, two], asked.err
        # The site answers from its own buffer; the mirror, which is listed here, hears of the calls by themselves.
        listed = await until(
            lambda: _rows(cli, "--status", "parked", "--target", "mes"), what="the mirror to hear of it"
        )
        assert [row[:2] for row in listed] == [[SITE, two]]
        retried = await cli("cached-calls", "retry", SITE, one, "--reason", "it is back", role="operator")
        assert (retried.code, retried.out) == (0, f"{one}: queued for retry\n")
        assert (await cli("cached-calls", "discard", SITE, two, role="operator")).out == f"{two}: discarded\n"
        again = await cli("cached-calls", "discard", SITE, two, role="operator")
        assert (again.code, "not_parked" in again.out) == (5, True)
        again = await cli("cached-calls", "discard", SITE, two, "--json", role="operator")
        assert (again.code, json.loads(again.out)["intents"][0]["outcome"]) == (5, "not_parked"), "scripts notice too"
        shown = (await cli("cached-calls", "show", SITE, one, role="viewer")).out
        assert "retry by operator" in shown
        assert "erp POST /orders" in shown
        events = await cli("sites", "events", SITE, "--kind", "requeued", role="operator")
        assert one in events.out
        assert "The rejected box is empty." in (await cli("sites", "rejected", SITE, role="operator")).out
        health = (await cli("sites", "health", SITE, role="viewer")).out
        assert "online" in health
        assert (await cli("cached-calls", "reconcile", SITE, role="operator")).code == 0
    assert [calls.record(call_id).status for call_id in (one, two)] == ["retrying", "discarded"]


async def _rows(cli: Cli, *by: str) -> list[list[str]]:
    listed = (await cli("cached-calls", "list", *by, role="viewer")).out
    return [line.split() for line in listed.splitlines()[1:]]


@pytest.mark.req("DEC-27")
async def test_request_to_an_offline_site_waits_and_can_be_cancelled(cli: Cli, calls: Calls) -> None:
    one = calls.parked()
    given = await cli("cached-calls", "retry", SITE, one, "--wait", "0", role="operator")
    assert (given.code, f"waiting for site {SITE}" in given.out) == (0, True)
    cli.front.clock.advance(1)
    look = await cli("sites", "events", SITE, "--wait", "0.1", role="operator")
    assert (look.code, "site.unreachable" in look.err) == (7, True)
    waiting = json.loads((await cli("intents", "list", "--state", "waiting", "--json", role="viewer")).out)["intents"]
    assert [intent["kind"] for intent in waiting] == ["query_events", "retry"]
    assert (await cli("intents", "cancel", waiting[1]["intent_id"], role="operator")).code == 0
    assert "cancelled" in (await cli("intents", "show", waiting[1]["intent_id"], role="viewer")).out
    assert (await cli("cached-calls", "retry", SITE, one, role="viewer")).code == 6
    assert (await cli("cached-calls", "retry", "south", one, role="operator")).code == 4
