"""Mails through a real Postfix arrive as they were written."""

from collections.abc import Iterator
from email import message_from_bytes, policy

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.outcome import Delivered, PermanentFailure
from fieldpost.core.ids import NotificationId
from support.mailing import envelope
from support.postfix import Postfix, need_postfix

BODIES = {
    "ascii": "Pump 3 is hot.\nIt has 93 degrees.\n",
    "umlauts": "Pumpe 3 läuft heiß: 93 °C\n",
    "cjk": "三号泵过热。\n温度九十三度。\n",
    "emoji": "🔥 pump 3 👩🏽‍🔧 called\n",
    "leading dots": ".\n..\n.hidden\nmid\n.\n",
    "long lines": "x" * 2000 + "\n" + "ä" * 2000 + "\n" + "word " * 400 + "\n",
    "from": "From the pump\n>From\n",
    "spaces": "  indented \t\n trailing   \n\n\n",
}


@pytest.fixture(scope="module")
def postfix() -> Iterator[Postfix]:
    need_postfix()
    with Postfix() as postfix:
        yield postfix


async def test_bodies_and_subjects_arrive_unchanged(postfix: Postfix, adapter: EmailAdapter) -> None:
    settings = {"port": postfix.port, "command_timeout_s": 60, "data_timeout_s": 60}
    ids = {}
    for number, (name, body) in enumerate(BODIES.items()):
        ids[name] = NotificationId(f"0198c8a0-0000-7000-8000-{number:012}")
        outcome = await adapter.deliver(
            envelope(
                None,
                f"user{number}@plant.example",
                settings=settings,
                notification_id=ids[name],
                subject=f"{name}: heiß 🔥",
                body=body,
            )
        )
        assert isinstance(outcome, Delivered), outcome
    mails = [message_from_bytes(raw, policy=policy.default) for raw in postfix.received(len(BODIES))]
    arrived = {mail["X-Fieldpost-Id"]: mail for mail in mails}
    assert len(mails) == len(BODIES)
    for name, body in BODIES.items():
        mail = arrived[ids[name]]
        payload = mail.get_payload(decode=True)
        assert isinstance(payload, bytes)
        # Postfix keeps lines with LF; what travelled in base64 still has the CRLF of mail.
        assert payload.replace(b"\r\n", b"\n") == body.encode(), name
        assert mail["Subject"] == f"{name}: heiß 🔥"
        assert mail["Message-ID"] == f"<{ids[name]}@fieldpost.internal>"


async def test_recipients_rejected_by_postfix_do_not_affect_the_others(postfix: Postfix, adapter: EmailAdapter) -> None:
    before = len(postfix.received(0))
    settings = {"port": postfix.port, "command_timeout_s": 60, "data_timeout_s": 60}
    targets = ("anna@plant.example", f"{'x' * 64}@plant.example", "no@[bad", "bert@plant.example")
    outcome = await adapter.deliver(envelope(None, *targets, settings=settings))
    assert isinstance(outcome, PermanentFailure)
    assert [target.status.value for target in outcome.targets] == ["delivered", "delivered", "failed", "delivered"]
    assert len(postfix.received(before + 3)) == before + 3
