"""A site's agent and central over a real control connection: telemetry, reconciliation, commands and health."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from fieldpost import Site
from fieldpost.central.store.sites import cached_calls, mirrors
from fieldpost.central.store.sites import health as site_health
from fieldpost.clock import SystemClock
from fieldpost.core.sites.health import SiteCondition
from fieldpost.core.sites.intent import Intent, IntentKind, IntentState
from fieldpost.link.codec import decode, encode
from fieldpost.link.endpoint import CONTROL_PATH
from fieldpost.link.messages import Command, Hello, LinkMessage, Reconcile
from fieldpost.site.buffer import event_queries
from fieldpost.site.config.folder import read_folder
from fieldpost.site.config.options import ReportOptions
from fieldpost.site.forwarding.forwarder import ForwardHealth
from fieldpost.site.reporting.control import Control
from support.calls import Calls, changes_of
from support.centre import SITE
from support.front import ADMIN, OPERATOR, Front, open_front, served
from support.running_central import RunningCentral, call, until
from support.visitor import visiting

DEADLINE_S = 30.0
QUICK = ReportOptions(health_interval_s=0.2, poll_s=0.02, reconnect_interval_s=0.05)
QUIET = ReportOptions(health_interval_s=0.2, poll_s=0.02, reconnect_interval_s=0.05, telemetry=False)


@pytest.fixture
async def front(sqlite_url: str, clock: Any) -> AsyncIterator[Front]:
    """What is on trial here is the conversation; the stores have tests of their own."""
    async with open_front(sqlite_url, clock) as opened:
        yield opened


@pytest.fixture
async def central(front: Front) -> AsyncIterator[str]:
    """Central as it is served, with its command_sender; its URL."""
    async with served(front.app) as url:
        command_sender = asyncio.create_task(front.commands.run())
        try:
            yield url
        finally:
            command_sender.cancel()
            await asyncio.gather(command_sender, return_exceptions=True)


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[Calls]:
    (tmp_path / "site").mkdir()
    opened = Calls(tmp_path / "site" / "buffer.db", SystemClock())
    yield opened
    opened.close()


@asynccontextmanager
async def agent(calls: Calls, url: str, token: str, options: ReportOptions = QUICK) -> AsyncIterator[Control]:
    """The part of a site's agent that speaks on the control connection, for this buffer."""
    folder = calls.path.parent
    if not (folder / "site.toml").exists():
        Site.create(folder, SITE, url, token).close()
    (folder / "site.toml").write_text(f'[site]\nname = "{SITE}"\n[central]\nurl = "{url}"\n')
    control = Control(read_folder(folder), calls.buffer, ForwardHealth, SystemClock(), Random(1), options=options)
    stopping = asyncio.Event()
    running = asyncio.create_task(control.run(stopping))
    try:
        yield control
    finally:
        stopping.set()
        async with asyncio.timeout(DEADLINE_S):
            await running


async def status_of(front: Front, call_id: str, site: str = SITE) -> str | None:
    found = await front.centre.store.read(cached_calls.get, site, call_id)
    return found.report.status.value if found else None


async def mirrored(front: Front, call_id: str, status: str) -> None:
    async def is_so() -> bool:
        return await status_of(front, call_id) == status

    await until(is_so, DEADLINE_S, f"{call_id} to be {status} in the mirror", every_s=0.02)


async def ended(front: Front, intent: Intent) -> Intent:
    async def is_so() -> Intent | None:
        found = await front.watch.cached_calls.intent(intent.intent_id)
        return None if found.state.is_open else found

    found = await until(is_so, DEADLINE_S, f"intent {intent.kind} to end", every_s=0.02)
    assert isinstance(found, Intent)
    return found


def acts(calls: Calls, message_id: str, kind: str) -> int:
    """How often the site's own log tells of such an act."""
    wanted = event_queries.SiteEventFilter(message_id=message_id, kind=kind)
    return len(calls.buffer.read(lambda cursor: event_queries.query(cursor, wanted)))


@pytest.mark.req("TEL-01", "TRK-12")
async def test_every_transition_at_a_site_is_reported_over_the_link(front: Front, central: str, calls: Calls) -> None:
    before = calls.issue()
    async with agent(calls, central, front.tokens["site"]):
        await mirrored(front, before, "pending")
        for call_id, status in changes_of(calls):
            await mirrored(front, call_id, status)


async def test_a_cleanly_stopped_agent_is_shown_as_stopped_at_once_on_every_page(
    front: Front, central: str, calls: Calls
) -> None:
    async def is_online() -> bool:
        return (await front.watch.sites.one(SITE))[0].condition is SiteCondition.ONLINE

    async with agent(calls, central, front.tokens["site"]):
        await until(is_online, DEADLINE_S, "the first report", every_s=0.02)
    async with front.client("viewer") as client:
        health = (await client.get(f"/api/v1/site-health/{SITE}")).json()["site"]
        issues = (await client.get("/api/v1/health")).json()["issues"]
    assert (health["condition"], health["link"]) == ("stopped", "offline")
    assert [one["code"] for one in issues if one["code"].startswith("site.")] == ["site.stopped"]
    async with visiting(front, "viewer") as visitor:
        for path in ("/", "/sites", f"/sites/{SITE}"):
            assert "stopped</span>" in (await visitor.client.get(path)).text, path
    async with agent(calls, central, front.tokens["site"]):
        await until(is_online, DEADLINE_S, "the agent to be started again", every_s=0.02)


@pytest.mark.req("TEL-03", "TEL-04", "DEC-06")
async def test_every_transition_is_reconciled_when_telemetry_is_off(front: Front, central: str, calls: Calls) -> None:
    async with agent(calls, central, front.tokens["site"], QUIET):
        for call_id, status in changes_of(calls):
            # The interval is over.
            front.commands.connected(SITE)
            await mirrored(front, call_id, status)


@pytest.mark.req("TEL-07", "TEL-09", "TEL-10", "RES-36")
async def test_an_operators_retry_of_a_parked_call_shows_retrying_in_the_mirror(
    front: Front, central: str, calls: Calls
) -> None:
    one = calls.parked()
    async with agent(calls, central, front.tokens["site"]):
        await mirrored(front, one, "parked")
        async with front.client("operator") as client:
            body = {"site": SITE, "kind": "retry", "message_ids": [one]}
            answer = await client.post("/api/v1/intents", json=body)
        assert answer.status_code == 201
        await mirrored(front, one, "retrying")
        calls.park(one)
        await mirrored(front, one, "parked")
        (discard,) = await front.operate.intents.create(OPERATOR, SITE, IntentKind.DISCARD, message_ids=[one])
        await mirrored(front, one, "discarded")
        assert (await ended(front, discard)).outcome == "applied"
        (again,) = await front.operate.intents.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[one])
        assert (await ended(front, again)).outcome == "not_parked"


@pytest.mark.req("DEC-27")
async def test_intent_for_an_offline_site_waits_and_is_applied_once_when_it_returns(
    front: Front, central: str, calls: Calls
) -> None:
    one, two = calls.parked(), calls.parked()
    given = await front.operate.intents.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[one, two])
    cancelled = await front.operate.intents.cancel(OPERATOR, given[1].intent_id)
    assert cancelled.state is IntentState.CANCELLED
    assert (await front.watch.cached_calls.intent(given[0].intent_id)).state is IntentState.WAITING
    for _ in range(2):
        async with agent(calls, central, front.tokens["site"]):
            assert (await ended(front, given[0])).outcome == "applied"
            await mirrored(front, one, "retrying")
    assert (acts(calls, one, "requeued"), acts(calls, two, "requeued")) == (1, 0)
    assert calls.record(two).status == "parked"


@pytest.mark.req("DEC-27")
async def test_command_whose_answer_was_lost_is_sent_again_and_applied_once(
    front: Front, central: str, calls: Calls
) -> None:
    one = calls.parked()
    (given,) = await front.operate.intents.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[one])
    async with raw_site(central, front.tokens["site"]) as line:
        command = await heard(line, Command)
        # The site does it and is cut off before it can say so.
        async with agent(calls, "http://127.0.0.1:9", front.tokens["site"]) as control:
            assert (await asyncio.to_thread(control._commands.apply, command)).outcome == "applied"
    sent = await front.watch.cached_calls.intent(given.intent_id)
    assert (sent.state, sent.attempts) == (IntentState.SENT, 1)
    calls.park(one)
    async with agent(calls, central, front.tokens["site"]):
        done = await ended(front, given)
    assert (done.outcome, done.attempts) == ("applied", 2)
    assert acts(calls, one, "requeued") == 1
    assert calls.record(one).status == "parked"


@pytest.mark.req("TEL-06")
async def test_central_queries_a_site_over_the_link(front: Front, central: str, calls: Calls) -> None:
    one = calls.parked()
    async with agent(calls, central, front.tokens["site"]):
        (parked,) = await front.operate.intents.create(OPERATOR, SITE, IntentKind.LIST_PARKED)
        (log,) = await front.operate.intents.create(
            OPERATOR, SITE, IntentKind.QUERY_EVENTS, arguments={"severity": "error"}
        )
        (box,) = await front.operate.intents.create(OPERATOR, SITE, IntentKind.LIST_REJECTED)
        answers = [(await ended(front, intent)).answer for intent in (parked, log, box)]
    rows: list[Any] = [answer["rows"] for answer in answers if answer is not None]
    assert [[row.get("call_id") or row["message_id"] for row in found] for found in rows] == [[one], [one], []]


async def test_operator_can_request_a_new_reading(front: Front, central: str, calls: Calls) -> None:
    one = calls.issue()
    async with agent(calls, central, front.tokens["site"], QUIET):
        await mirrored(front, one, "pending")
        (given,) = await front.operate.intents.create(OPERATOR, SITE, IntentKind.RECONCILE)
        assert (await ended(front, given)).outcome == "applied"

        async def is_read() -> bool:
            mirror = await front.centre.store.read(mirrors.load, SITE)
            return mirror is not None and mirror.round == 2 and not mirror.is_rereading

        await until(is_read, DEADLINE_S, "the second round to end")


@pytest.mark.req("DEC-26", "SF-21")
async def test_a_site_reports_its_health_when_it_connects_and_again(front: Front, central: str, calls: Calls) -> None:
    async def parked() -> int | None:
        health = await front.centre.store.read(site_health.get, SITE)
        return health.report.parked if health else None

    async with agent(calls, central, front.tokens["site"]):
        await until(lambda: _is(parked, 0), DEADLINE_S, "the first report")
        calls.parked()
        await until(lambda: _is(parked, 1), DEADLINE_S, "a newer report")


async def _is(look: Callable[[], Any], value: object) -> bool:
    return bool(await look() == value)


async def test_silent_site_does_not_block_the_others(front: Front, central: str, calls: Calls) -> None:
    one = calls.parked()
    dead = (await front.operate.sites.add(ADMIN, "dead")).token
    (ignored,) = await front.operate.intents.create(OPERATOR, "dead", IntentKind.LIST_PARKED)
    async with raw_site(central, dead) as line:
        await heard(line, Command)
        await heard(line, Reconcile)
        (given,) = await front.operate.intents.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[one])
        async with agent(calls, central, front.tokens["site"]):
            assert (await ended(front, given)).outcome == "applied"
        still = await front.watch.cached_calls.intent(ignored.intent_id)
        assert (still.state, still.attempts) == (IntentState.SENT, 1)


@pytest.mark.req("DEC-27")
async def test_intent_survives_a_restart_of_central_and_is_applied_once(
    sqlite_url: str, tmp_path: Path, calls: Calls
) -> None:
    """Central is killed after the intent was given, and again after it was sent."""
    one = calls.parked()
    async with RunningCentral(sqlite_url, tmp_path / "central") as central:
        token = (tmp_path / "central" / "api-token").read_text().strip()
        site_token = (await call(central, token, "POST", "sites", {"name": SITE}))["token"]
        body = {"site": SITE, "kind": "retry", "message_ids": [one], "reason": "the system is back"}
        (given,) = (await call(central, token, "POST", "intents", body))["intents"]
        await central.kill()
        await central.start()
        async with raw_site(central.url, site_token) as line:
            command = await heard(line, Command)
            async with agent(calls, "http://127.0.0.1:9", site_token) as control:
                await asyncio.to_thread(control._commands.apply, command)
            await central.kill()
        await central.start()
        async with agent(calls, central.url, site_token):

            async def done() -> Any:
                intent = await call(central, token, "GET", f"intents/{given['intent_id']}")
                shown = await call(central, token, "GET", f"cached-calls?site={SITE}")
                is_told = [one["status"] for one in shown["cached_calls"]] == ["retrying"]
                return intent if intent["state"] == "done" and is_told else None

            settled = await until(done, DEADLINE_S, "the intent to be done and the mirror to show it")
        assert (settled["outcome"], settled["attempts"]) == ("applied", 2)
        assert acts(calls, one, "requeued") == 1


@asynccontextmanager
async def raw_site(url: str, token: str) -> AsyncIterator["aiohttp.ClientWebSocketResponse[bool]"]:
    """A control connection on which the test itself is the site."""
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http,
        http.ws_connect(url + CONTROL_PATH) as line,
    ):
        await line.send_bytes(encode(Hello(1, "test")))
        yield line


async def heard(line: "aiohttp.ClientWebSocketResponse[bool]", kind: type[LinkMessage]) -> Any:
    """The next message of this kind."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            frame = await line.receive()
            message = decode(frame.data)
            if isinstance(message, kind):
                return message
