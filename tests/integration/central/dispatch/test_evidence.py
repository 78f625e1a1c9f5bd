"""Outcome and evidence together: the outcome decides about the notification, the evidence about the breaker."""

import socket
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.central.store.notifications import breakers
from fieldpost.core.delivery.breaker import Breaker, BreakerState, channel_key, record
from fieldpost.core.delivery.outcome import (
    Delivered,
    Evidence,
    Held,
    Outcome,
    PermanentFailure,
    TransientFailure,
    Uncertain,
)
from fieldpost.core.delivery.retry import parse
from fieldpost.core.delivery.routing import CHANNEL_BREAKER
from fieldpost.core.notification import Status
from fieldpost.testing import MailServer, ManualClock
from support.centre import Centre

KEY = channel_key("mail")
UNAVAILABLE = TransientFailure("503 Service Unavailable", evidence=Evidence.FAILS)
WORKS, FAILS, NONE = Evidence.WORKS, Evidence.FAILS, Evidence.NONE

# Outcome to the status, retry count and hold of its notification; evidence to the failures that the breaker counts
# after it had counted one.
BY_OUTCOME: list[tuple[Callable[[Evidence], Outcome], tuple[Status, int, str | None]]] = [
    (lambda evidence: Delivered(evidence=evidence), (Status.DELIVERED, 0, None)),
    (lambda evidence: TransientFailure("later", evidence=evidence), (Status.RETRYING, 1, None)),
    (lambda evidence: PermanentFailure("never", evidence=evidence), (Status.PARKED, 0, None)),
    (lambda evidence: Uncertain("no answer", evidence=evidence), (Status.RETRYING, 1, None)),
    (lambda evidence: Held("unreachable", evidence=evidence), (Status.PENDING, 0, KEY)),
]
BY_EVIDENCE = {WORKS: 0, FAILS: 2, NONE: 1}


async def count_one_failure(centre: Centre) -> None:
    rule: Callable[[Breaker], Breaker] = partial(
        record, evidence=FAILS, error="refused", policy=CHANNEL_BREAKER, now=centre.clock.now()
    )
    await centre.store.write(breakers.change, KEY, rule)


async def state_of(centre: Centre, sent: str) -> tuple[Status, int, str | None]:
    found = await centre.get(sent)
    return found.status, found.retry_count, found.held_by


@pytest.mark.req("DEC-10", "DEC-22")
@pytest.mark.parametrize("evidence", Evidence)
@pytest.mark.parametrize(
    ("make", "expected"), BY_OUTCOME, ids=["delivered", "transient", "permanent", "uncertain", "held"]
)
async def test_each_outcome_with_each_evidence(
    mailing: Centre, make: Callable[[Evidence], Outcome], expected: tuple[Status, int, str | None], evidence: Evidence
) -> None:
    await count_one_failure(mailing)
    mailing.adapter.answer("ops", make(evidence))
    sent = await mailing.send()
    await mailing.deliver()
    assert await state_of(mailing, sent) == expected
    assert (await mailing.breaker()).failures == BY_EVIDENCE[evidence]


# Attempts that end before the adapter is called, or by a bug in it, show nothing about the path


async def no_adapter(centre: Centre) -> None:
    centre.adapters.clear()


async def no_targets(centre: Centre) -> None:
    await centre.execute("delete from list_targets")


async def site_not_allowed(centre: Centre) -> None:
    await centre.execute("update lists set allowed_sites = '[\"plant-8\"]'")


async def bug(centre: Centre) -> None:
    centre.adapter.always["ops"] = ValueError("a bug in the adapter")


async def no_outcome(centre: Centre) -> None:
    centre.adapter.always["ops"] = lambda envelope: returned("not an outcome")


async def returned(value: object) -> Outcome:
    return value  # type: ignore[return-value]


@pytest.mark.req("DEC-22", "ADP-12")
@pytest.mark.parametrize("spoil", [no_adapter, no_targets, site_not_allowed, bug, no_outcome])
async def test_attempt_that_never_reached_its_path_is_not_evidence_about_it(
    mailing: Centre, spoil: Callable[[Centre], Awaitable[None]]
) -> None:
    await count_one_failure(mailing)
    sent = await mailing.send()
    await spoil(mailing)
    await mailing.deliver()
    assert (await mailing.get(sent)).status is Status.PARKED
    assert (await mailing.breaker()).failures == 1


# A 503 counts twice: on the notification's schedule and toward the block


@pytest.mark.req("DEC-22", "DEC-19")
async def test_twenty_503s_open_the_breaker_at_its_threshold_and_each_uses_up_a_step_of_its_schedule(
    mailing: Centre, clock: ManualClock
) -> None:
    await mailing.execute("update lists set retry = 'schedule:15m,30m,1h'")
    mailing.adapter.always["ops"] = UNAVAILABLE
    dispatcher = mailing.dispatcher(breaker_failures_max=20)
    sent, health = [], []
    async with dispatcher.running():
        for _ in range(20):
            sent.append(await mailing.send())
            await mailing.deliver(dispatcher)
            health.append((await mailing.breaker()).health)
        assert health == ["monitored"] * 19 + ["blocked"]
        for one in sent:
            found = await mailing.get(one)
            assert (found.status, found.retry_count) == (Status.RETRYING, 1)
            assert found.last_attempt_at is not None
            assert found.next_attempt_at == found.last_attempt_at + parse("schedule:15m,30m,1h").delay(1, 0)  # type: ignore[operator]
        late = await mailing.send()
        await mailing.deliver(dispatcher)
        assert await state_of(mailing, late) == (Status.PENDING, 0, KEY), "an open breaker uses up no step"
    assert mailing.adapter.count == 20


@pytest.mark.req("DEC-22", "DEC-19")
async def test_the_503s_of_one_notification_count_on_its_schedule_and_on_the_breaker(
    mailing: Centre, clock: ManualClock
) -> None:
    await mailing.execute("update lists set retry = 'schedule:1m,2m,3m'")
    mailing.adapter.always["ops"] = UNAVAILABLE
    sent = await mailing.send()
    seen = []
    async with (dispatcher := mailing.dispatcher(breaker_failures_max=4)).running():
        for _ in range(4):
            await mailing.deliver(dispatcher)
            breaker = await mailing.breaker()
            found = await mailing.get(sent)
            seen.append((found.status, found.retry_count, breaker.failures, breaker.state))
            clock.advance(180)
    closed = BreakerState.CLOSED
    assert seen == [
        (Status.RETRYING, 1, 1, closed),
        (Status.RETRYING, 2, 2, closed),
        (Status.RETRYING, 3, 3, closed),
        (Status.PARKED, 4, 4, BreakerState.OPEN),
    ]


# Email, by the whole way: what its channel's breaker counts


def refuse_connection(server: MailServer) -> None:
    server.on("connect").reply(554, "no service")


def refuse_ehlo(server: MailServer) -> None:
    server.on("ehlo").reply(502, "not implemented")
    server.on("helo").reply(502, "not implemented")


def defer_recipient(server: MailServer) -> None:
    server.on("rcpt").reply(450, "4.2.1 busy")


def refuse_recipient(server: MailServer) -> None:
    server.on("rcpt").reply(550, "5.1.1 no such user")


def refuse_mail(server: MailServer) -> None:
    server.on("dot").reply(554, "5.6.0 never")


def close_after_dot(server: MailServer) -> None:
    server.on("dot").close()


def accept(server: MailServer) -> None:
    server.behave()


@pytest.mark.req("DEC-10", "DEC-22")
@pytest.mark.parametrize(
    ("behave", "expected", "failures"),
    [
        (accept, (Status.DELIVERED, 0, None), 0),
        (refuse_connection, (Status.PENDING, 0, KEY), 2),
        (refuse_ehlo, (Status.PENDING, 0, KEY), 2),
        (defer_recipient, (Status.RETRYING, 1, None), 0),
        (refuse_recipient, (Status.PARKED, 0, None), 0),
        (refuse_mail, (Status.PARKED, 0, None), 0),
        (close_after_dot, (Status.RETRYING, 1, None), 1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_email_holds_count_as_failures_any_answer_as_success_and_silence_not_at_all(
    centre: Centre,
    behave: Callable[[MailServer], None],
    expected: tuple[Status, int, str | None],
    failures: int,
) -> None:
    async with MailServer() as server:
        behave(server)
        settings = {"host": server.host, "port": server.port, "tls": "none", "from_address": "alerts@plant.example"}
        assert await mailed(centre, settings) == (expected, failures)


@pytest.mark.req("DEC-10", "DEC-22")
async def test_unreachable_email_server_counts_as_a_failure(centre: Centre) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = {"host": "127.0.0.1", "port": port, "tls": "none", "from_address": "alerts@plant.example"}
    assert await mailed(centre, settings) == ((Status.PENDING, 0, KEY), 2)


async def mailed(centre: Centre, settings: dict[str, object]) -> tuple[tuple[Status, int, str | None], int]:
    """One mail over a channel whose breaker has counted one failure: its state, and the failures after it."""
    await centre.add_channel(**settings)
    await centre.add_list("ops", "ann@plant.example")
    await count_one_failure(centre)
    adapter = EmailAdapter()
    centre.adapters["email"] = adapter
    sent = await centre.send()
    await centre.deliver()
    await adapter.close()
    return await state_of(centre, sent), (await centre.breaker()).failures
