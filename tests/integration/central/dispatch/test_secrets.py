"""Secrets on their way to the adapter, and a channel whose secrets cannot be read."""

import pytest
from structlog.testing import capture_logs

from fieldpost.central.secrets.keyring import Keyring, SecretKey, SecretOwner
from fieldpost.central.store.notifications import lists
from fieldpost.core.delivery.outcome import Held, PermanentFailure, TransientFailure
from fieldpost.core.lists import Channel
from fieldpost.core.notification import Status, Target, TargetStatus
from fieldpost.core.secret import Secret
from support.centre import Centre

CANARY = "kanarie-1234-geheim"
OTHER_KEY = SecretKey.of(b"x" * 32)


async def add_channel(
    centre: Centre, name: str = "mail", key: SecretKey | None = None, *, default: bool = True
) -> None:
    ring = Keyring([key]) if key else centre.keyring
    sealed = {"password": ring.seal(Secret(CANARY), SecretOwner("channel", name, name), "password", bytes(12))}
    channel = Channel(name, "email", {}, default, secrets=sealed)
    await centre.store.write(lists.add_channel, channel, centre.clock.now())


@pytest.mark.dec("DEC-34")
async def test_adapter_gets_the_secret_as_a_value_that_hides_itself(centre: Centre) -> None:
    await add_channel(centre)
    await centre.add_list("ops")
    await centre.send("ops")
    await centre.deliver()
    (envelope,) = centre.adapter.envelopes
    assert envelope.settings["password"] == Secret(CANARY)
    assert CANARY not in repr(envelope)


@pytest.mark.fault(67)
@pytest.mark.parametrize("node_has", ["another key", "no key"])
async def test_a_channel_whose_secrets_cannot_be_read_is_held_and_the_rest_works(centre: Centre, node_has: str) -> None:
    await add_channel(centre, key=OTHER_KEY)
    await centre.add_channel("relay", default=False)
    await centre.add_list("ops")
    await centre.add_list("night", channel_name="relay")
    if node_has == "no key":
        centre.keyring = Keyring(problem="there is no key file")
    held, delivered = await centre.send_many(12, "ops"), await centre.send("night")
    for _ in range(3):
        await centre.deliver()
    assert (await centre.get(delivered)).status is Status.DELIVERED
    for one in held:
        found = await centre.get(one)
        assert (found.status, found.retry_count, found.held_by) == (Status.PENDING, 0, "channel:mail")
        assert "the password of channel 'mail' cannot be read" in (found.held_reason or "")
        assert OTHER_KEY.key_id in (found.held_reason or "")
    assert centre.adapter.sent("ops") == []
    # The right key at the next start: the breaker's probe succeeds, and all of it goes out.
    centre.keyring = Keyring([OTHER_KEY])
    centre.clock.advance(61)  # type: ignore[attr-defined]
    for _ in range(3):
        await centre.deliver()
    assert {(await centre.get(one)).status for one in held} == {Status.DELIVERED}


@pytest.mark.req("ADP-13")
@pytest.mark.threat(23)
@pytest.mark.parametrize(
    "answer",
    [
        PermanentFailure(f"535 what is {CANARY}?", reply=f"535 {CANARY}", phase="rcpt"),
        TransientFailure(f"451 {CANARY}", (Target("ops@example.org", TargetStatus.DUE, f"451 {CANARY}"),)),
        Held(f"no, {CANARY}", f"500 {CANARY}", "auth"),
        ValueError(f"cannot log in with {CANARY}"),
    ],
    ids=lambda answer: type(answer).__name__,
)
async def test_secret_in_an_answer_is_removed_before_storing(centre: Centre, answer: object) -> None:
    await add_channel(centre)
    await centre.add_list("ops")
    centre.adapter.answer("ops", answer)  # type: ignore[arg-type]
    sent = await centre.send("ops")
    with capture_logs() as lines:
        await centre.deliver()
    shown = (
        f"{await centre.get(sent)} {await centre.attempts(sent)} {await centre.audit(sent)} {await centre.breaker()}"
    )
    assert "***" in shown
    assert CANARY not in shown
    assert CANARY not in str([line for line in lines if line["event"] != "attempt.crashed"])
