"""After a refused message the connection is fit for the next one, and a server out of step costs no attempt."""

import asyncio
from collections.abc import Iterator

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.outcome import Delivered, Held, PermanentFailure, TransientFailure
from fieldpost.core.notification import TargetStatus
from fieldpost.testing import MailServer
from support.mailing import after, due, envelope, notification
from support.postfix import Postfix, need_postfix

A, B = "anna@plant.example", "bert@plant.example"


@pytest.mark.parametrize("reply", [(450, "4.7.1 later"), (554, "5.7.1 spam")], ids=["450", "554"])
async def test_after_a_refused_dot_the_next_mail_resets_the_transaction(
    server: MailServer, adapter: EmailAdapter, reply: tuple[int, str]
) -> None:
    server.on("dot").reply(*reply).keep_transaction().times(1)
    refused = await adapter.deliver(envelope(server, A))
    assert isinstance(refused, TransientFailure if reply[0] == 450 else PermanentFailure)
    assert isinstance(await adapter.deliver(envelope(server, B)), Delivered)
    assert [mail.recipients for mail in server.mails] == [(B,)]
    assert (len(server.connections), server.seen["rset"]) == (1, 1)


async def test_after_a_refused_dot_the_next_transaction_of_the_attempt_resets_it(
    server: MailServer, adapter: EmailAdapter
) -> None:
    server.on("dot").reply(450, "4.7.1 later").keep_transaction().times(1)
    targets = [f"user{number}@plant.example" for number in range(150)]
    outcome = await adapter.deliver(envelope(server, *targets))
    assert isinstance(outcome, TransientFailure)
    assert [mail.recipients for mail in server.mails] == [tuple(targets[100:])]
    assert len(server.connections) == 1


@pytest.mark.fault(64)
@pytest.mark.parametrize("verb", ["mail", "rcpt", "data"])
async def test_a_server_out_of_step_gets_the_mail_over_a_new_connection(
    server: MailServer, adapter: EmailAdapter, verb: str
) -> None:
    assert isinstance(await adapter.deliver(envelope(server, A)), Delivered)
    server.on(verb).reply(503, "5.5.1 nested MAIL command").times(1)  # type: ignore[arg-type]
    assert isinstance(await adapter.deliver(envelope(server, A, B)), Delivered)
    assert [mail.recipients for mail in server.mails] == [(A,), (A, B)]
    assert len(server.connections) == 2


async def test_a_server_out_of_step_in_a_later_transaction_sends_no_second_copy(
    server: MailServer, adapter: EmailAdapter
) -> None:
    server.on("mail").after(1).reply(503, "5.5.1 nested MAIL command").times(1)
    targets = [f"user{number}@plant.example" for number in range(150)]
    outcome = await adapter.deliver(envelope(server, *targets))
    assert isinstance(outcome, Delivered)
    assert {target.status for target in outcome.targets} == {TargetStatus.DELIVERED}
    assert [mail.recipients for mail in server.mails] == [tuple(targets[:100]), tuple(targets[100:])]


async def test_reached_targets_stay_delivered_without_a_new_connection(
    server: MailServer, adapter: EmailAdapter
) -> None:
    server.on("mail").after(1).reply(503, "5.5.1 nested MAIL command").times(1)
    server.on("ehlo").after(1).reply(450, "4.3.2 later")
    targets = [f"user{number}@plant.example" for number in range(150)]
    outcome = await adapter.deliver(envelope(server, *targets))
    assert isinstance(outcome, Held)
    assert due(after(notification(*targets), outcome)) == tuple(targets[100:])


async def test_a_server_that_is_always_out_of_step_is_tried_on_two_connections(
    server: MailServer, adapter: EmailAdapter
) -> None:
    server.on("mail").reply(503, "5.5.1 bad sequence")
    outcome = await adapter.deliver(envelope(server, A))
    assert isinstance(outcome, PermanentFailure)
    assert (outcome.reply, len(server.connections)) == ("503 5.5.1 bad sequence", 2)


async def test_a_message_pipelined_behind_a_refused_dot_takes_a_new_connection(adapter: EmailAdapter) -> None:
    """Postfix rejects its MAIL with 503 but accepts its RCPT into the old transaction: the message must not follow."""
    answer = asyncio.Event()
    one = {"max_connections": 1}
    async with MailServer() as server:
        await adapter.deliver(envelope(server, "warm@plant.example", settings=one))
        server.on("dot").wait(answer).reply(554, "5.7.1 spam").keep_transaction().times(1)
        first = asyncio.create_task(adapter.deliver(envelope(server, A, settings=one)))
        second = asyncio.create_task(adapter.deliver(envelope(server, B, settings=one)))
        await server.saw("dot", 2)
        async with asyncio.timeout(20):
            while b"DATA\r\n" not in server.connections[0].wire._received:
                await asyncio.sleep(0)
        answer.set()
        assert isinstance(await first, PermanentFailure)
        assert isinstance(await second, Delivered)
        assert [mail.recipients for mail in server.mails] == [("warm@plant.example",), (B,)]
        assert len(server.connections) == 2
        await adapter.close()


@pytest.fixture(scope="module")
def postfix() -> Iterator[Postfix]:
    need_postfix()
    rejects = "inline:{{later@plant.example=450 4.7.1 later}, {never@plant.example=554 5.7.1 never}}"
    with Postfix(f"smtpd_end_of_data_restrictions = check_recipient_access {rejects}") as postfix:
        yield postfix


@pytest.mark.parametrize("name", ["later", "never"])
async def test_mail_rejected_by_postfix_at_the_dot_does_not_affect_the_next_one(
    postfix: Postfix, adapter: EmailAdapter, name: str
) -> None:
    before = len(postfix.received(0))
    settings = {"port": postfix.port}
    refused = await adapter.deliver(envelope(None, f"{name}@plant.example", settings=settings))
    assert isinstance(refused, TransientFailure if name == "later" else PermanentFailure)
    assert refused.phase == "dot"
    again = await adapter.deliver(envelope(None, f"{name}@plant.example", settings=settings))
    assert (type(again), again.reply) == (type(refused), refused.reply)
    assert isinstance(await adapter.deliver(envelope(None, A, settings=settings)), Delivered)
    assert len(postfix.received(before + 1)) == before + 1


async def test_mail_pipelined_behind_one_that_postfix_rejects_arrives(postfix: Postfix, adapter: EmailAdapter) -> None:
    before = len(postfix.received(0))
    settings = {"port": postfix.port, "max_connections": 1}
    names = ["good0", "never", "good1", "later", "good2", "never", "good3"]
    mails = [envelope(None, f"{name}@plant.example", settings=settings) for name in names]
    outcomes = await asyncio.gather(*map(adapter.deliver, mails))
    kinds = {"good": Delivered, "neve": PermanentFailure, "late": TransientFailure}
    assert [type(outcome) for outcome in outcomes] == [kinds[name[:4]] for name in names]
    assert len(postfix.received(before + 4)) == before + 4
