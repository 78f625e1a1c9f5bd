"""Connections to mail servers: used again, counted, given up when dead; and several attempts over one at a time."""

import asyncio

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.adapter import ClaimLost
from fieldpost.core.delivery.outcome import Delivered, Held, PermanentFailure, TransientFailure, Uncertain
from fieldpost.testing import MailServer, ManualClock
from fieldpost.testing.mail import Limits
from support.mailing import envelope


async def test_one_connection_carries_many_mails(server: MailServer, adapter: EmailAdapter) -> None:
    for number in range(5):
        assert isinstance(await adapter.deliver(envelope(server, f"user{number}@plant.example")), Delivered)
    assert [mail.recipients[0] for mail in server.mails] == [f"user{number}@plant.example" for number in range(5)]
    [connection] = server.connections
    assert (connection.mail_count, server.seen["ehlo"], server.seen["quit"]) == (5, 1, 0)


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_connections_are_open_than_the_channel_allows(adapter: EmailAdapter, limit: int) -> None:
    # The server itself refuses one more, so a single one too many would be heard as 421.
    async with MailServer(limits=Limits(connections=limit)) as server:
        settings = {"max_connections": limit}
        outcomes = await asyncio.gather(*(adapter.deliver(envelope(server, settings=settings)) for _ in range(60)))
        assert {type(outcome) for outcome in outcomes} == {Delivered}
        assert (server.mail_count, len(server.connections)) == (60, limit)
        await adapter.close()


async def test_the_limit_holds_while_connections_break(adapter: EmailAdapter) -> None:
    async with MailServer(limits=Limits(connections=2)) as server:
        server.on("rcpt").close().times(10)
        server.on("rcpt").reset().times(10)
        settings = {"max_connections": 2}
        outcomes = await asyncio.gather(*(adapter.deliver(envelope(server, settings=settings)) for _ in range(60)))
        assert [type(outcome) for outcome in outcomes].count(TransientFailure) == 20
        assert [type(outcome) for outcome in outcomes].count(Delivered) == 40
        assert not any("Too many connections" in str(connection) for connection in server.connections)
        await adapter.close()


async def test_attempt_without_a_free_connection_before_its_deadline_is_held(server: MailServer) -> None:
    adapter = EmailAdapter(deadline_s=2)
    server.on("dot").hang()
    busy = asyncio.create_task(adapter.deliver(envelope(server, settings={"max_connections": 1})))
    await server.saw("dot")
    outcome = await adapter.deliver(envelope(server, settings={"max_connections": 1}))
    assert isinstance(outcome, Held)
    assert "the maximum of 1 connection to 127.0.0.1 is in use" in outcome.error
    assert isinstance(await busy, Uncertain)
    await adapter.close()


async def test_cancelled_waiter_passes_its_connection_to_the_next(server: MailServer, adapter: EmailAdapter) -> None:
    gate = asyncio.Event()
    server.on("dot").wait(gate).times(1)
    one = {"max_connections": 1}
    first = asyncio.create_task(adapter.deliver(envelope(server, "a@plant.example", settings=one)))
    await server.saw("dot")
    second = asyncio.create_task(adapter.deliver(envelope(server, "b@plant.example", settings=one)))
    third = asyncio.create_task(adapter.deliver(envelope(server, "c@plant.example", settings=one)))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    assert isinstance(await first, Delivered)
    assert isinstance(await third, Delivered)
    assert [mail.recipients[0][0] for mail in server.mails] == ["a", "c"]


@pytest.mark.fault(64)
@pytest.mark.parametrize("how", ["closed", "reset", "421 and closed", "421"])
async def test_connection_lost_while_idle_costs_no_attempt(server: MailServer, adapter: EmailAdapter, how: str) -> None:
    await adapter.deliver(envelope(server))
    [idle] = server.connections
    if how.startswith("421"):
        idle.say(421, "4.4.2 idle for too long")
    if how == "reset":
        idle.reset()
    elif how != "421":
        idle.close()
    outcome = await adapter.deliver(envelope(server))
    assert isinstance(outcome, Delivered)
    assert (server.mail_count, len(server.connections)) == (2, 2)


@pytest.mark.fault(64)
@pytest.mark.parametrize("how", ["close", "reset", "unavailable", "hang"])
async def test_a_connection_that_dies_at_its_second_mail_costs_no_attempt(
    server: MailServer, adapter: EmailAdapter, how: str
) -> None:
    await adapter.deliver(envelope(server))
    getattr(server.on("mail"), how)().times(1)
    outcome = await adapter.deliver(envelope(server, settings={"command_timeout_s": 1.5 if how == "hang" else 30}))
    assert isinstance(outcome, Delivered)
    assert (server.mail_count, len(server.connections)) == (2, 2)


@pytest.mark.fault(64)
async def test_only_one_fresh_connection_is_tried(server: MailServer, adapter: EmailAdapter) -> None:
    await adapter.deliver(envelope(server))
    server.on("mail").unavailable()
    outcome = await adapter.deliver(envelope(server))
    assert isinstance(outcome, TransientFailure)
    assert len(server.connections) == 2


async def test_idle_connection_is_closed_with_quit(server: MailServer) -> None:
    adapter = EmailAdapter(idle_s=0.05)
    await adapter.deliver(envelope(server))
    await server.idle()
    assert server.seen["quit"] == 1
    assert isinstance(await adapter.deliver(envelope(server)), Delivered)
    await adapter.close()


async def test_changed_password_replaces_open_connections(adapter: EmailAdapter) -> None:
    async with MailServer(auth=lambda given: given.secret in ("old", "new")) as server:
        settings = {"auth": "basic", "username": "alerts", "max_connections": 1}
        await adapter.deliver(envelope(server, settings=settings | {"password": "old"}))
        await adapter.deliver(envelope(server, settings=settings | {"password": "new"}))
        assert (server.mail_count, server.seen["auth"], len(server.connections)) == (2, 2, 2)
        await adapter.close()


async def test_failed_transaction_leaves_the_connection_usable(server: MailServer, adapter: EmailAdapter) -> None:
    server.on("rcpt").reply(550, "5.1.1 nobody").times(1)
    assert isinstance(await adapter.deliver(envelope(server)), PermanentFailure)
    server.on("mail").reply(451, "4.3.0 later").times(1)
    assert isinstance(await adapter.deliver(envelope(server)), TransientFailure)
    assert isinstance(await adapter.deliver(envelope(server)), Delivered)
    assert server.mail_count == 1


# -- PIPELINING --------------------------------------------------------------------------------------------------------


async def test_mail_rcpt_and_data_are_pipelined_if_offered(adapter: EmailAdapter) -> None:
    async with MailServer() as server:
        gate = asyncio.Event()
        server.on("mail").wait(gate)
        task = asyncio.create_task(adapter.deliver(envelope(server, "a@plant.example", "b@plant.example")))
        await server.saw("mail")
        # All of it lies there before MAIL is answered.
        wire = server.connections[0].wire
        async with asyncio.timeout(20):
            while b"DATA\r\n" not in wire._received:
                await asyncio.sleep(0)
        assert bytes(wire._received) == b"RCPT TO:<a@plant.example>\r\nRCPT TO:<b@plant.example>\r\nDATA\r\n"
        gate.set()
        assert isinstance(await task, Delivered)
        await adapter.close()


async def test_commands_wait_for_their_answers_without_pipelining(adapter: EmailAdapter) -> None:
    async with MailServer(extensions=["8BITMIME", "SIZE"]) as server:
        await adapter.deliver(envelope(server, "a@plant.example", "b@plant.example"))
        speakers = "".join("C" if line.speaker == "client" else "S" for line in server.connections[0].transcript)
        assert speakers == "S" + "CS" * 6
        await adapter.close()


@pytest.mark.fault(39)
async def test_recipient_accepted_after_a_452_gets_the_mail_once(adapter: EmailAdapter) -> None:
    """Asked for in one write, a recipient behind the one too many may be taken all the same."""
    async with MailServer() as server:
        server.on("rcpt", address="b@plant.example").reply(452, "4.5.3 too many").times(1)
        targets = tuple(f"{name}@plant.example" for name in "abc")
        outcome = await adapter.deliver(envelope(server, *targets))
        assert isinstance(outcome, Delivered)
        assert [mail.recipients for mail in server.mails] == [(targets[0], targets[2]), (targets[1],)]
        await adapter.close()


async def test_message_without_accepted_recipients_is_not_sent(adapter: EmailAdapter) -> None:
    async with MailServer() as server:
        server.on("rcpt").reply(550, "5.1.1 nobody").times(1)
        server.on("data").reply(354, "go on then").times(1)
        outcome = await adapter.deliver(envelope(server))
        assert isinstance(outcome, PermanentFailure)
        assert isinstance(await adapter.deliver(envelope(server)), Delivered)
        await adapter.close()
        assert (server.mail_count, server.seen["dot"]) == (1, 1)


# -- one speaks while another waits for its answer ---------------------------------------------------------------------


@pytest.fixture
async def busy() -> "Busy":
    return Busy()


class Busy:
    """A server with one connection that has carried a mail, whose next message waits for its answer, with another
    attempt already speaking behind it."""

    def __init__(self) -> None:
        self.server = MailServer()
        self.adapter = EmailAdapter()
        self.answer = asyncio.Event()

    async def __aenter__(self) -> "Busy":
        await self.server.start()
        await self.adapter.deliver(self.mail("warm"))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.answer.set()
        await self.adapter.close()
        await self.server.stop()

    def mail(self, name: str, **changes: object):  # type: ignore[no-untyped-def]
        return envelope(self.server, f"{name}@plant.example", settings={"max_connections": 1}, **changes)

    async def two(self, **changes: object):  # type: ignore[no-untyped-def]
        """The first has sent its message; the second has said MAIL, RCPT and DATA behind it."""
        gated = asyncio.Event()
        first = asyncio.create_task(self.adapter.deliver(self.mail("first", gate=gated.set)))
        second = asyncio.create_task(self.adapter.deliver(self.mail("second", **changes)))
        await gated.wait()
        await self.server.saw("dot", 2)
        wire = self.server.connections[0].wire
        async with asyncio.timeout(20):
            while b"DATA\r\n" not in wire._received:
                await asyncio.sleep(0)
        return first, second


async def test_next_attempt_is_pipelined_behind_a_waiting_message(busy: Busy) -> None:
    async with busy:
        busy.server.on("dot").wait(busy.answer).times(1)
        first, second = await busy.two()
        assert not first.done()
        busy.answer.set()
        assert isinstance(await first, Delivered)
        assert isinstance(await second, Delivered)
        names = [mail.recipients[0].partition("@")[0] for mail in busy.server.mails]
        assert (names, len(busy.server.connections)) == (["warm", "first", "second"], 1)


@pytest.mark.parametrize("how", ["close", "unavailable"])
async def test_follower_takes_a_fresh_connection_if_the_leader_gets_no_answer(busy: Busy, how: str) -> None:
    async with busy:
        getattr(busy.server.on("dot").wait(busy.answer), how)().times(1)
        first, second = await busy.two()
        busy.answer.set()
        assert isinstance(await first, Uncertain if how == "close" else TransientFailure)
        assert isinstance(await second, Delivered)
        assert [mail.recipients[0].partition("@")[0] for mail in busy.server.mails] == ["warm", "second"]


async def test_rejected_leader_does_not_affect_its_follower(busy: Busy) -> None:
    async with busy:
        busy.server.on("dot").wait(busy.answer).reply(554, "5.7.1 spam").times(1)
        first, second = await busy.two()
        busy.answer.set()
        assert isinstance(await first, PermanentFailure)
        assert isinstance(await second, Delivered)


async def test_cancelled_follower_does_not_affect_its_leader(busy: Busy) -> None:
    async with busy:
        busy.server.on("dot").wait(busy.answer).times(1)
        first, second = await busy.two()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        busy.answer.set()
        assert isinstance(await first, Delivered)
        await busy.server.until(lambda: not busy.server.open_connections)
        assert [mail.recipients[0].partition("@")[0] for mail in busy.server.mails] == ["warm", "first"]


async def test_a_follower_whose_claim_is_lost_sends_nothing(busy: Busy) -> None:
    def gate() -> None:
        raise ClaimLost

    async with busy:
        busy.server.on("dot").wait(busy.answer).times(1)
        first, second = await busy.two(gate=gate)
        busy.answer.set()
        assert isinstance(await first, Delivered)
        with pytest.raises(ClaimLost):
            await second
        assert busy.server.seen["dot"] == 2


async def test_cancelled_leader_does_not_affect_its_follower(busy: Busy) -> None:
    async with busy:
        busy.server.on("dot").wait(busy.answer).times(1)
        first, second = await busy.two()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert isinstance(await second, Delivered)


async def test_attempts_are_not_pipelined_behind_slow_answers() -> None:
    clock = ManualClock()
    adapter = EmailAdapter(clock=clock)
    async with MailServer() as server:
        one = {"max_connections": 1}
        server.on("dot", when=lambda _: clock.advance(1) is None).accept()
        await adapter.deliver(envelope(server, settings=one))
        gate = asyncio.Event()
        server.behave()
        server.on("dot").wait(gate).times(1)
        first = asyncio.create_task(adapter.deliver(envelope(server, settings=one)))
        second = asyncio.create_task(adapter.deliver(envelope(server, settings=one)))
        await server.saw("dot", 2)
        assert server.seen["mail"] == 2
        assert not server.connections[0].wire._received
        gate.set()
        assert [type(await task) for task in (first, second)] == [Delivered, Delivered]
        await adapter.close()
