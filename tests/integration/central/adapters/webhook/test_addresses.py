"""Names that lead nowhere, to another address or to two: 127.0.0.2 stands for a public address, 127.0.0.3 for a
private one."""

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trustme

from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.operate.subscriptions import SubscriptionActions
from fieldpost.core.delivery.outcome import Delivered, Evidence, Held, Outcome, TransientFailure
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.secret import Secret
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.resolver import CACHE_S, SystemResolver
from fieldpost.testing import HttpServer, ManualClock
from support.black_hole import BlackHole
from support.centre import open_centre
from support.front import ADMIN
from support.webhooks import webhook

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2 and 127.0.0.3")

PUBLIC, PRIVATE = "127.0.0.2", "127.0.0.3"
OAUTH = {"auth": "oauth2", "client_id": "fieldpost", "auth_secret": Secret("client secret")}


class HostileNames:
    """A name server for `SystemResolver` whose answers change; the last one stays."""

    def __init__(self, *answers: Sequence[str] | OSError) -> None:
        self.asked = 0
        self._answers = list(answers)

    def __call__(self, name: str) -> Sequence[str]:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


class Stage:
    """A server at the public address, and one at the private address that must never be connected to."""

    def __init__(self, public: HttpServer, private: HttpServer, stack: AsyncExitStack) -> None:
        self.public = public
        self.private = private
        self.clock = ManualClock()
        self._stack = stack

    def outbound(self, *answers: Sequence[str] | OSError, **options: Any) -> Outbound:
        """The product's client and resolver on a name server with these answers."""
        names = HostileNames(*(answers or ([PUBLIC],)))
        resolver = SystemResolver(look_up=names, clock=self.clock)
        made = Outbound(OutboundOptions(PUBLIC), resolve=resolver, **options)
        self._stack.push_async_callback(made.close)
        return made

    async def deliver(self, outbound: Outbound, url: str, deadline_s: float = 30.0, **settings: Any) -> Outcome:
        return await WebhookAdapter(outbound=outbound, deadline_s=deadline_s).deliver(webhook(url, **settings))

    @property
    def named(self) -> str:
        """The URL of the receiver by name. Both servers have this port."""
        return f"http://hook.example:{self.public.port}/in"

    @property
    def inside(self) -> str:
        return f"{self.private.url}/inside"


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        public = await stack.enter_async_context(HttpServer(host=PUBLIC))
        private = await stack.enter_async_context(HttpServer(host=PRIVATE, port=public.port))
        yield Stage(public, private, stack)
        assert private.connection_count == 0, "nothing ever connects to the private address"


@pytest.mark.fault(53)
@pytest.mark.threat(15)
async def test_name_that_changes_to_a_private_address_is_checked_at_each_connection(stage: Stage) -> None:
    outbound = stage.outbound([PUBLIC], [PRIVATE])
    assert isinstance(await stage.deliver(outbound, stage.named), Delivered)
    [request] = stage.public.requests
    assert request.headers["host"] == f"hook.example:{stage.public.port}", "the name is kept"
    stage.clock.advance(CACHE_S + 1)
    stage.public.close_connections()
    await stage.public.idle()
    outcome = await stage.deliver(outbound, stage.named)
    assert isinstance(outcome, Held)
    assert (outcome.phase, outcome.evidence) == ("guard", Evidence.NONE)
    assert "hook.example may not be reached" in outcome.error
    assert len(stage.public.requests) == 1


@pytest.mark.fault(53)
@pytest.mark.threat(15)
@pytest.mark.parametrize("answer", [[PUBLIC, PRIVATE], [PRIVATE, PUBLIC], [PUBLIC, "::ffff:127.0.0.3"]], ids=str)
async def test_one_private_address_among_the_answers_blocks_all(stage: Stage, answer: list[str]) -> None:
    outcome = await stage.deliver(stage.outbound(answer), stage.named)
    assert isinstance(outcome, Held)
    assert (outcome.phase, stage.public.connection_count) == ("guard", 0)


@pytest.mark.fault(53)
async def test_a_pinned_address_is_called_under_its_name_in_tls_too(stage: Stage) -> None:
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("hook.example").configure_cert(serving)
    asked: list[str | None] = []

    def note(_: ssl.SSLObject | ssl.SSLSocket, name: str | None, __: ssl.SSLContext) -> None:
        asked.append(name)

    serving.sni_callback = note
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with HttpServer(host=PUBLIC, tls=serving) as server:
        outbound = stage.outbound([PUBLIC], [PRIVATE], tls_context=trusting)
        url = f"https://hook.example:{server.port}/in"
        assert isinstance(await stage.deliver(outbound, url), Delivered)
        assert asked == ["hook.example"]
        assert server.requests[0].headers["host"] == f"hook.example:{server.port}"


@pytest.mark.fault(50, 53)
@pytest.mark.threat(15)
@pytest.mark.parametrize("way", ["url", "redirect", "redirect loop", "rebinding", "token URL", "token redirect"])
async def test_a_blocked_address_is_connected_to_zero_times(stage: Stage, way: str) -> None:
    outbound = stage.outbound([PRIVATE] if way == "rebinding" else [PUBLIC])
    settings: dict[str, Any] = {}
    url = stage.named
    expected: tuple[type[Outcome], str, int] = (Held, "guard", 0)
    match way:
        case "url":
            url = stage.inside
        case "redirect":
            stage.public.on().redirect(stage.inside)
            expected = (TransientFailure, "answer", 1)
        case "redirect loop":
            stage.public.on().redirect(stage.named, 308)
            expected = (TransientFailure, "answer", 1)
        case "token URL":
            settings = {**OAUTH, "token_url": stage.inside}
            expected = (Held, "token", 0)
        case "token redirect":
            settings = {**OAUTH, "token_url": f"{stage.named}/token"}
            stage.public.on(path="/in/token").redirect(stage.inside)
            expected = (Held, "token", 1)
    outcome = await stage.deliver(outbound, url, **settings)
    assert (type(outcome), outcome.phase, len(stage.public.requests)) == expected
    assert stage.private.connection_count == 0


@pytest.mark.threat(15)
@pytest.mark.parametrize("way", ["rebinding", "redirect", "token URL"])
async def test_the_test_button_does_not_connect_to_a_blocked_address(stage: Stage, store_url: str, way: str) -> None:
    """The name had a public address when the subscription was made; a private one is refused at once."""
    later = [PUBLIC] if way == "redirect" else [PRIVATE]
    outbound = stage.outbound([PUBLIC], later)
    adapters = {"webhook": WebhookAdapter(outbound=outbound)}
    settings = {"url": stage.named}
    if way == "token URL":
        settings = {"url": f"http://{PUBLIC}:{stage.public.port}/in", "token_url": stage.named}
        settings |= {"auth": "oauth2", "client_id": "fieldpost"}
    if way == "redirect":
        stage.public.on().redirect(stage.inside)
    async with open_centre(store_url, stage.clock) as centre:
        options = WebhookOptions(allow_plain=True)
        actions = SubscriptionActions(centre.store, adapters, stage.clock, centre.keyring, options)
        with pytest.raises(InvalidInput, match="may not be reached"):
            await actions.add(ADMIN, "inside", "shop", (FilterEntry(),), {"url": stage.inside})
        secrets = {"auth_secret": "s"} if way == "token URL" else {}
        made = await actions.add(ADMIN, "billing", "shop", (FilterEntry(),), settings, secrets)
        stage.clock.advance(CACHE_S + 1)
        tested = await actions.test(ADMIN, made.subscription.subscription_id)
    assert not isinstance(tested.outcome, Delivered)
    assert tested.outcome.phase == {"rebinding": "guard", "redirect": "answer", "token URL": "token"}[way]
    assert stage.private.connection_count == 0


@pytest.mark.fault(46)
@pytest.mark.dec("DEC-45")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "Temporary failure"),
        (socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure (a CNAME loop)"), "CNAME loop"),
        ([], "has no address"),
    ],
    ids=["nxdomain", "servfail", "loop", "empty"],
)
async def test_unresolvable_name_holds_without_a_quick_try(
    stage: Stage, answer: Sequence[str] | OSError, reason: str
) -> None:
    outcome = await stage.deliver(stage.outbound(answer), stage.named)
    assert isinstance(outcome, Held)
    assert (outcome.phase, outcome.evidence) == ("resolve", Evidence.NONE)
    assert reason in outcome.error
    assert len(outcome.exchanges[0].tries) == 1


@pytest.mark.fault(46)
async def test_a_name_server_that_does_not_answer_holds_at_the_deadline(stage: Stage) -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        raise AssertionError

    outbound = Outbound(OutboundOptions(PUBLIC), resolve=never)
    async with asyncio.timeout(20):
        outcome = await stage.deliver(outbound, stage.named, deadline_s=0.3)
    await outbound.close()
    assert isinstance(outcome, Held)
    assert (outcome.phase, outcome.evidence) == ("resolve", Evidence.NONE)


@pytest.mark.fault(65)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("first", [PUBLIC, "::1"], ids=["IPv4", "IPv6"])
def test_address_that_drops_packets_is_skipped_within_five_seconds(loop: str, first: str) -> None:
    import uvloop

    async def send() -> tuple[Outcome, float]:
        async def resolve(host: str, port: int) -> Sequence[str]:
            return [first, PRIVATE]

        async with HttpServer(host=PRIVATE) as server:
            outbound = Outbound(OutboundOptions(f"{first} {PRIVATE}"), resolve=resolve)
            with BlackHole(first, server.port):
                began = asyncio.get_running_loop().time()
                sent = webhook(f"http://hook.example:{server.port}/in", quick_tries=0)
                outcome = await WebhookAdapter(outbound=outbound).deliver(sent)
                took_s = asyncio.get_running_loop().time() - began
            await outbound.close()
            return outcome, took_s

    outcome, took_s = (uvloop.run if loop == "uvloop" else asyncio.run)(send())
    assert isinstance(outcome, Delivered)
    assert took_s < 5
