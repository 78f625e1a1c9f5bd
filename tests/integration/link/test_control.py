"""The control connection: the sender's client against central as it is served."""

import os
from random import Random

import aiohttp
import pytest
from structlog.testing import capture_logs

from fieldpost.central.store.accounts import identities
from fieldpost.clock import SystemClock
from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.front.app import create_app
from fieldpost.front.backend import Backend
from fieldpost.front.options import FrontOptions
from fieldpost.link import credentials
from fieldpost.link.client import LinkClient
from fieldpost.link.codec import encode
from fieldpost.link.connection import LOST
from fieldpost.link.control import ControlClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Ack, Health, Hello, LinkMessage, Reconcile, Refusal, Submit
from fieldpost.link.session import LinkSession
from support.front import Front, served
from support.line import Line, receive
from support.link_central import link_central
from support.loops import running
from support.running_central import until
from support.site_folders import TOKEN


async def heard_nothing(message: LinkMessage) -> LinkMessage | None:
    raise AssertionError(message)


async def test_control_connection_is_registered_under_its_site_until_it_ends(front: Front) -> None:
    backend: Backend = front.app.state.backend
    async with served(front.app) as url:
        client = ControlClient(lambda: Endpoint(url, front.tokens["site"]), heard_nothing, SystemClock(), Random(1))
        assert not client.is_connected
        with pytest.raises(Unavailable, match="no control connection"):
            await client.send(Hello(1, "x"))
        async with running(client):
            await until(lambda: client.is_connected and backend.commands.connections.of("plant-7"))
            assert backend.commands.connections.sites == ["plant-7"]
            link = backend.commands.connections.of("plant-7")
            assert link is not None
            assert client.greeting is not None
        await until(lambda: backend.commands.connections.of("plant-7") is None)
        assert not client.is_connected
        with pytest.raises(Unavailable, match="not connected"):
            await link.send(Refusal("x", "y"))


async def test_requests_of_central_are_answered_and_an_error_affects_only_its_answer(front: Front) -> None:
    heard: list[LinkMessage] = []

    async def handle(message: LinkMessage) -> LinkMessage | None:
        heard.append(message)
        match message:
            case Reconcile(after=1):
                return Health(sent_at="2026-11-15T12:00:00.000000Z", version="1", backlog={})
            case Reconcile(after=2):
                raise InvalidInput("command.unknown", "no such thing")
            case Reconcile(after=3):
                raise RuntimeError("a bug")
        return None

    answers: list[LinkMessage] = []
    async with link_central() as central:
        central.hear_control = answers.append
        client = ControlClient(lambda: Endpoint(central.url, TOKEN), handle, SystemClock(), Random(1), interval_s=0.05)
        async with running(client):
            await until(lambda: client.is_connected)
            for number in range(5):
                await central.say_control(Reconcile(number))
            await until(lambda: len(heard) == 5 and len(answers) == 3)
            assert isinstance(answers[0], Health)
            assert [a.code for a in answers[1:] if isinstance(a, Refusal)] == ["command.unknown", "internal"]
            await client.send(Health(sent_at="2026-11-15T12:00:00.000000Z", version="2", backlog={}))
            await until(lambda: len(answers) == 4)
        await until(lambda: not central.control_sockets, what="the connection to end at the other side, too")


async def test_a_control_connection_that_ends_is_opened_again_at_any_of_the_addresses() -> None:
    async with link_central() as first, link_central() as second:
        endpoint = Endpoint(first.url, TOKEN, None, (second.url,))
        client = ControlClient(lambda: endpoint, heard_nothing, SystemClock(), Random(1), interval_s=0.02)
        async with running(client):
            await until(lambda: len(first.control_sockets) == 1 and client.is_connected)
            first.upgrade_status = 503
            await first.end_control()
            await until(lambda: len(second.control_sockets) == 1 and client.is_connected)
            first.upgrade_status = None
            await second.end_control()
            await until(lambda: len(second.control_sockets) == 1 and client.is_connected)
            assert not first.control_sockets, "the one that worked comes first"


async def test_problems_of_the_control_connection_are_logged_once_per_kind() -> None:
    async with link_central() as central:
        central.upgrade_status = 401
        client = ControlClient(
            lambda: Endpoint(central.url, TOKEN), heard_nothing, SystemClock(), Random(1), interval_s=0.01
        )
        with capture_logs() as logs:
            async with running(client):
                await until(lambda: central.upgrades >= 4)
                central.upgrade_status = None
                await until(lambda: client.is_connected)
        assert [line["event"] for line in logs] == ["control.failed", "control.connected"]


@pytest.mark.threat(3)
async def test_a_rotated_token_is_noticed_without_a_restart_on_both_connections(front: Front) -> None:
    """The site's file has the new token before the old one is revoked; nothing else is needed."""
    async with served(front.app) as url:
        token = {"now": front.tokens["site"]}
        client = LinkClient(lambda: Endpoint(url, token["now"]), LinkSession(), SystemClock())
        control = ControlClient(
            lambda: Endpoint(url, token["now"]), heard_nothing, SystemClock(), Random(1), interval_s=0.02
        )
        async with running(control):
            assert isinstance(await client.submit([front.centre.item()]), Ack)
            await until(lambda: control.is_connected)
            old = token["now"]
            issued = credentials.issue("site", os.urandom(credentials.ENTROPY_BYTES))
            now = front.centre.clock.now()
            store = front.centre.store
            record = identities.TokenRecord(issued.prefix, "site", issued.digest, "plant-7", None, now)
            await store.write(identities.add_token, record)
            token["now"] = issued.text
            await store.write(identities.revoke_token, "site", credentials.prefix_of(old, "site"), now)
            item = front.centre.item()
            with pytest.raises(Unavailable) as caught:
                await client.submit([item])
            assert caught.value.code == LOST
            assert isinstance(await client.submit([item]), Ack)
            connection = control._connection
            await control.send(Health(sent_at="2026-11-15T12:00:00.000000Z", version="1", backlog={}))
            await until(lambda: control.is_connected and control._connection is not connection)
        await client.close()


@pytest.mark.dec("DEC-26")
@pytest.mark.threat(2)
async def test_site_over_its_data_rate_can_still_use_its_control_connection(front: Front) -> None:
    options = FrontOptions(items_per_s=1, burst_s=1)
    app = create_app(front.operate, front.watch, front.centre.ingest, front.commands, options)
    async with served(app) as url, aiohttp.ClientSession(base_url=url) as http:
        line = Line(front, url, http)
        async with line.websocket() as data:
            await data.send_bytes(encode(Submit(1, tuple(front.centre.item() for _ in range(50)))))
            assert isinstance(await receive(data), Ack)
            await data.send_bytes(encode(Submit(2, (front.centre.item(),))))
            refusal = await receive(data)
            assert isinstance(refusal, Refusal)
            assert refusal.code == "link.quota"
            headers = {"Authorization": f"Bearer {line.token}"}
            async with http.ws_connect("/link/v1/control", headers=headers) as control:
                assert isinstance(await receive(control), Hello)
                await control.send_bytes(b'{"t":"tomorrow"}')
                answer = await receive(control)
                assert isinstance(answer, Refusal)
                assert answer.code == "link.invalid"
