"""Finding the mail server: names that lead nowhere, addresses that do not answer or may not be spoken to."""

import asyncio
import socket
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import pytest
from structlog.testing import capture_logs

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.outcome import Delivered, Held, Outcome
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Status
from fieldpost.outbound import guard
from fieldpost.outbound.guard import Resolve
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing import MailServer, MailServerThread
from support.black_hole import BlackHole
from support.mailing import after, due, envelope, notification

NAME = {"host": "mail.plant.example"}


def resolving(*addresses: str) -> Resolve:
    async def resolve(host: str, port: int) -> Sequence[str]:
        assert host == "mail.plant.example"
        return addresses

    return resolve


def failing(code: int, text: str) -> Resolve:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(code, text)

    return resolve


async def never(host: str, port: int) -> Sequence[str]:
    await asyncio.Event().wait()
    raise AssertionError


def adapter_with(resolve: Resolve, allow: str = "", **options: Any) -> EmailAdapter:
    return EmailAdapter(outbound=Outbound(OutboundOptions(allow), resolve=resolve), **options)


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("resolve", "reason"),
    [
        (failing(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (failing(socket.EAI_AGAIN, "Temporary failure in name resolution"), "Temporary failure"),
        (failing(socket.EAI_FAIL, "Non-recoverable failure (a CNAME loop)"), "CNAME loop"),
        (resolving(), "has no address"),
        (never, "within 0.3 s"),
    ],
    ids=["nxdomain", "servfail", "loop", "empty", "time-out"],
)
async def test_unresolvable_name_holds(resolve: Resolve, reason: str) -> None:
    adapter = adapter_with(resolve)
    outcome = await adapter.deliver(envelope(None, settings=NAME | {"connect_timeout_s": 0.3}))
    assert isinstance(outcome, Held)
    assert (outcome.phase, reason in outcome.error) == ("connect", True)
    held = after(notification(), outcome)
    assert (held.status, held.retry_count, due(held)) == (Status.PENDING, 0, ("ops@plant.example",))
    await adapter.close()


@pytest.mark.fault(46)
@pytest.mark.parametrize("field", ["host", "oauth_token_url"])
async def test_nonexistent_name_is_rejected_on_save(field: str) -> None:
    adapter = adapter_with(failing(socket.EAI_NONAME, "Name or service not known"))
    value = "mail.plant.example" if field == "host" else "https://mail.plant.example/token"
    with pytest.raises(InvalidInput) as refused:
        await adapter.check_hosts({field: value})
    assert (refused.value.code, refused.value.field) == ("host.unknown", field)
    assert "mail.plant.example" in refused.value.message
    await adapter.close()


@pytest.mark.fault(46)
@pytest.mark.parametrize("resolve", [failing(socket.EAI_AGAIN, "try again"), failing(socket.EAI_FAIL, "failed"), never])
async def test_name_that_cannot_be_resolved_now_is_accepted_on_save(
    resolve: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "LOCATE_S", 0.1)
    adapter = adapter_with(resolve)
    await adapter.check_hosts(NAME)
    await adapter.close()


async def test_host_of_a_denied_range_is_rejected_on_save() -> None:
    adapter = adapter_with(resolving("169.254.169.254"))
    with pytest.raises(InvalidInput, match="may not be reached"):
        await adapter.check_hosts(NAME)
    await adapter.close()


@pytest.mark.fault(65)
@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2 and a queue that drops when it is full")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_address_that_drops_packets_is_skipped(loop: str) -> None:
    import uvloop

    async def send(server: MailServerThread) -> Outcome:
        adapter = adapter_with(resolving("127.0.0.2", server.host))
        outcome = await adapter.deliver(envelope(None, settings=NAME | {"port": server.port, "connect_timeout_s": 5}))
        await adapter.close()
        return outcome

    run = uvloop.run if loop == "uvloop" else asyncio.run
    with MailServerThread(host="127.0.0.3") as server, BlackHole("127.0.0.2", server.port):
        assert isinstance(run(send(server)), Delivered)


@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")
async def test_address_that_refuses_connections_is_skipped() -> None:
    async with MailServer(host="127.0.0.3") as server:
        adapter = adapter_with(resolving("127.0.0.2", "127.0.0.3"))
        assert isinstance(await adapter.deliver(envelope(None, settings=NAME | {"port": server.port})), Delivered)
        await adapter.close()


@pytest.mark.dec("DEC-35")
@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "100.100.100.200", "::ffff:169.254.169.254", "0.0.0.0"]
)
async def test_mail_server_at_a_denied_address_holds_and_is_logged(address: str) -> None:
    adapter = adapter_with(resolving("127.0.0.1", address))
    async with MailServer() as server:
        with capture_logs() as lines:
            outcome = await adapter.deliver(envelope(None, settings=NAME | {"port": server.port}))
        assert isinstance(outcome, Held)
        assert str(ip_address(address)) in outcome.error
        assert [line["event"] for line in lines] == ["outbound.blocked"]
        # Not even the good one of the two is spoken to.
        assert server.connections == []
    await adapter.close()


@pytest.mark.dec("DEC-35")
async def test_a_mail_server_may_be_private_and_a_denied_one_may_be_listed_by_name() -> None:
    async with MailServer() as server:
        adapter = adapter_with(resolving(server.host))
        assert isinstance(await adapter.deliver(envelope(None, settings=NAME | {"port": server.port})), Delivered)
        await adapter.close()
        # 0.0.0.0 leads to this machine, and is denied unless somebody means it.
        adapter = adapter_with(resolving("0.0.0.0"), allow="mail.plant.example")
        assert isinstance(await adapter.deliver(envelope(None, settings=NAME | {"port": server.port})), Delivered)
        await adapter.close()
