"""A server that rejects the channel's account or sender only at RCPT holds the rest; reached targets stay delivered."""

from collections.abc import Iterator

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.outcome import Delivered, Held, PermanentFailure
from fieldpost.core.notification import Status, TargetStatus
from fieldpost.testing import MailServer
from support.mailing import SENDER, after, due, envelope, notification
from support.postfix import Postfix, need_postfix

A, B, C = "anna@plant.example", "bert@plant.example", "cleo@plant.example"

ACCOUNT = [
    "530 5.7.0 log in",
    "534 5.7.9 mechanism too weak",
    "535 5.7.8 who",
    "538 5.7.11 encrypt",
    "550 5.1.7 bad sender",
    "553 5.1.8 sender's domain not found",
]


@pytest.mark.fault(36)
@pytest.mark.parametrize("reply", ACCOUNT)
async def test_rejected_account_holds_although_another_target_was_reached(
    server: MailServer, adapter: EmailAdapter, reply: str
) -> None:
    server.on("rcpt", address=B).reply(550, "5.1.1 no such user")
    server.on("rcpt", address=C).reply(int(reply[:3]), reply[4:]).times(1)
    outcome = await adapter.deliver(envelope(server, A, B, C))
    assert isinstance(outcome, Held)
    assert (outcome.error, outcome.reply) == (f"mail server at rcpt: {reply}", reply)
    held = after(notification(A, B, C), outcome)
    assert (held.status, held.retry_count, held.held_by) == (Status.PENDING, 0, "channel:mail")
    assert [target.status.value for target in held.targets] == ["delivered", "failed", "due"]
    assert isinstance(await adapter.deliver(envelope(server, *due(held))), Delivered)
    assert [mail.recipients for mail in server.mails] == [(A,), (C,)]


async def test_rejected_account_in_a_later_transaction_holds_the_rest(
    server: MailServer, adapter: EmailAdapter
) -> None:
    targets = [f"user{number}@plant.example" for number in range(150)]
    server.on("mail").after(1).reply(530, "5.7.0 log in")
    outcome = await adapter.deliver(envelope(server, *targets))
    assert isinstance(outcome, Held)
    assert due(after(notification(*targets), outcome)) == tuple(targets[100:])


@pytest.mark.fault(36)
async def test_a_policy_that_names_the_sender_to_all_recipients_holds(
    server: MailServer, adapter: EmailAdapter
) -> None:
    server.on("rcpt").reply(553, f"5.7.1 <{SENDER.upper()}>: Sender address rejected: not owned by user")
    outcome = await adapter.deliver(envelope(server, A, B))
    assert isinstance(outcome, Held)
    assert due(after(notification(A, B), outcome)) == (A, B)


@pytest.mark.fault(36)
@pytest.mark.parametrize(
    ("targets", "text", "refused"),
    [
        ((A,), f"5.7.1 <{SENDER}>: Sender address rejected", (A,)),
        ((A, B), f"5.7.1 <{SENDER}>: Sender address rejected", (B,)),
        ((A, B), "5.7.1 relaying denied", (A, B)),
        ((A, B), f"5.7.1 <x{SENDER}>: Sender address rejected", (A, B)),
    ],
    ids=["a single recipient", "not all of them", "another reason", "another sender"],
)
async def test_any_other_policy_fails_its_targets(
    server: MailServer, adapter: EmailAdapter, targets: tuple[str, ...], text: str, refused: tuple[str, ...]
) -> None:
    server.on("rcpt", address=refused.__contains__).reply(550, text)
    outcome = await adapter.deliver(envelope(server, *targets))
    assert isinstance(outcome, PermanentFailure)
    assert [t.address for t in outcome.targets if t.status is TargetStatus.FAILED] == list(refused)


@pytest.fixture(scope="module")
def postfix() -> Iterator[Postfix]:
    need_postfix()
    sender = "inline:{{gone@plant.example=550 5.1.8 no such sender}, {other@plant.example=553 5.7.1 not owned}}"
    account = "inline:{{closed@plant.example=530 5.7.0 authentication required}}"
    with Postfix(
        f"smtpd_sender_restrictions = check_sender_access {sender}",
        f"smtpd_recipient_restrictions = check_recipient_access {account}, permit_mynetworks, reject",
        "mynetworks = 127.0.0.0/8",
    ) as postfix:
        yield postfix


@pytest.mark.parametrize("name", ["gone", "other"])
async def test_a_sender_that_postfix_rejects_at_rcpt_holds(postfix: Postfix, adapter: EmailAdapter, name: str) -> None:
    settings = {"port": postfix.port, "from_address": f"{name}@plant.example"}
    outcome = await adapter.deliver(envelope(None, A, B, settings=settings))
    assert isinstance(outcome, Held)
    assert outcome.phase == "rcpt"
    assert f"{name}@plant.example" in outcome.error


async def test_a_target_for_which_postfix_wants_a_login_holds_and_the_other_is_reached(
    postfix: Postfix, adapter: EmailAdapter
) -> None:
    before = len(postfix.received(0))
    outcome = await adapter.deliver(envelope(None, A, "closed@plant.example", settings={"port": postfix.port}))
    assert isinstance(outcome, Held)
    assert [target.status.value for target in outcome.targets] == ["delivered", "due"]
    assert len(postfix.received(before + 1)) == before + 1
