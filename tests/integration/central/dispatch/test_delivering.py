"""One attempt after the other: what each outcome makes of the row, and what the audit tells of it."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from fieldpost.central.store.notifications import lists
from fieldpost.central.store.search import parked
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.explain import ClaimState, explain
from fieldpost.core.delivery.outcome import Delivered, Outcome, PermanentFailure, TransientFailure, Uncertain, fold
from fieldpost.core.lists import Channel
from fieldpost.core.notification import Status, Target, TargetStatus
from fieldpost.core.search.fingerprint import fingerprint
from fieldpost.testing import ManualClock
from support.centre import SITE, Answer, Centre, Hanging

DELIVERED, FAILED = TargetStatus.DELIVERED, TargetStatus.FAILED


@pytest.mark.req(
    "LIF-04", "LIF-07", "TBL-10", "TBL-14", "AUD-01", "AUD-02", "AUD-04", "AUD-05", "AUD-06", "DEC-14", "RES-12"
)
async def test_a_delivery_is_written_to_row_targets_attempt_and_audit(mailing: Centre, clock: ManualClock) -> None:
    async def slow(_: Envelope) -> Outcome:
        clock.advance(1.5)
        return Delivered(reply="250 queued", phase="dot")

    mailing.adapter.answer("ops", slow)
    sent = await mailing.send(execution_id="run-17", parent_execution_id="run-16")
    await mailing.deliver()
    n = await mailing.get(sent)
    assert (n.status, n.delivered_at, n.last_attempt_at, n.terminal_at) == (Status.DELIVERED, *[clock.now()] * 3)
    assert (n.next_attempt_at, n.due_at, n.retry_count, n.last_error) == (None, None, 0, None)
    assert n.targets == (Target("ops@example.org", DELIVERED),)
    [attempt] = await mailing.attempts(sent)
    assert (attempt.outcome, attempt.reply, attempt.phase) == ("delivered", "250 queued", "dot")
    assert (attempt.duration_ms, attempt.finished_at) == (1500, clock.now())
    submitted, attempted, delivered = await mailing.audit(sent)
    assert [(e.kind, e.status) for e in (attempted, delivered)] == [
        ("notify_deliver", "attempted"),
        ("notify_deliver", "delivered"),
    ]
    assert (attempted.duration_ms, attempted.response_summary) == (1500, "250 queued")
    for entry in (attempted, delivered):
        assert (entry.actor, entry.channel, entry.correlation_id) == ("system", "notification", sent)
        assert (entry.execution_id, entry.parent_execution_id) == ("run-17", "run-16")
        assert (entry.target, entry.source_site_id, entry.source_node) == ("ops", SITE, "node-1")
        assert entry.error_message is None
    assert submitted.source_node is None


@pytest.mark.req("DEC-01")
async def test_adapter_gets_the_same_id_and_date_at_every_attempt(mailing: Centre, clock: ManualClock) -> None:
    created = clock.now()
    mailing.adapter.answer("ops", TransientFailure("451"), Uncertain("no answer"))
    sent = await mailing.send()
    for _ in range(3):
        await mailing.deliver()
        clock.advance(60)
    first, *again = mailing.adapter.envelopes
    assert (first.notification_id, first.subject, first.body) == (sent, "Pump 3 stopped", "No flow since 08:14.")
    assert (first.targets, first.dated, first.list_name) == (("ops@example.org",), created, "ops")
    assert first.settings == {}, "the retry policy is the channel's, not the adapter's"
    assert len(again) == 2
    assert {(e.notification_id, e.dated, e.targets) for e in again} == {(sent, created, first.targets)}


@pytest.mark.req("LIF-03", "LIF-08", "LIF-09", "AUD-03", "RTY-01", "RTY-02", "DEC-19", "DSP-04")
async def test_transient_failure_is_retried_after_the_delay_of_the_channel_and_not_before(
    mailing: Centre, clock: ManualClock
) -> None:
    mailing.adapter.answer("ops", TransientFailure("451 busy", phase="rcpt"), TransientFailure("452 full"))
    sent = await mailing.send()
    await mailing.deliver()
    n = await mailing.get(sent)
    at = clock.now()
    assert (n.status, n.retry_count, n.last_error, n.last_attempt_at) == (Status.RETRYING, 1, "451 busy", at)
    assert (n.next_attempt_at, n.due_at) == (at + timedelta(seconds=60),) * 2
    assert await mailing.story(sent) == ["notify_send submitted", "notify_deliver attempted"]
    assert (await mailing.audit(sent))[-1].error_message == "451 busy"
    clock.advance(58.9)
    await mailing.deliver()
    assert len(mailing.adapter.envelopes) == 1
    await mailing.deliver()
    n = await mailing.get(sent)
    assert (n.status, n.retry_count, n.last_error) == (Status.RETRYING, 2, "452 full")
    assert n.next_attempt_at == clock.now() + timedelta(seconds=60), "the interval is fixed"
    clock.advance(60)
    await mailing.deliver()
    n = await mailing.get(sent)
    assert (n.status, n.retry_count, n.next_attempt_at) == (Status.DELIVERED, 2, None)
    assert [a.outcome for a in await mailing.attempts(sent)] == ["transient_failure"] * 2 + ["delivered"]
    assert await mailing.story(sent) == ["notify_send submitted"] + ["notify_deliver attempted"] * 3 + [
        "notify_deliver delivered"
    ]


@pytest.mark.req("LIF-05", "LIF-08", "AUD-02", "RES-09")
async def test_notification_parks_when_its_attempts_are_used_up(mailing: Centre, clock: ManualClock) -> None:
    mailing.adapter.always["ops"] = TransientFailure("451 busy")
    sent = await mailing.send()
    for _ in range(5):
        await mailing.deliver()
        clock.advance(60)
    n = await mailing.get(sent)
    assert (n.status, n.retry_count, n.last_error) == (Status.PARKED, 3, "451 busy")
    assert (n.next_attempt_at, n.due_at) == (None, None)
    assert n.terminal_at is not None
    assert len(mailing.adapter.envelopes) == 3, "three attempts in total"
    assert (await mailing.story(sent))[-2:] == ["notify_deliver attempted", "notify_deliver parked"]
    assert (await mailing.audit(sent))[-1].error_message == "451 busy"
    assert n.targets == (Target("ops@example.org", FAILED, "451 busy"),)


@pytest.mark.req("LIF-05", "DEC-11")
async def test_row_audit_and_group_of_a_parked_notification_name_all_replies(
    mailing: Centre, clock: ManualClock
) -> None:
    names = [f"user{number:02}@example.org" for number in range(16)]
    await mailing.add_list("crew", *names)
    first = tuple(Target(name, FAILED, f"550 <{name}>: unknown") for name in names[:4])
    later = tuple(Target(name, TargetStatus.DUE, "450 busy") for name in names[4:])
    mailing.adapter.answer("crew", fold((*first, *later)), fold(later), fold(later))
    sent = await mailing.send("crew")
    for _ in range(3):
        await mailing.deliver()
        clock.advance(60)
    n = await mailing.get(sent)
    said = (
        f"4 targets ({', '.join(names[:4])}): 550 <{names[0]}>: unknown;"
        f" 12 targets ({', '.join(names[4:14])} and 2 more): 450 busy"
    )
    assert (n.status, n.last_error) == (Status.PARKED, said)
    assert (await mailing.audit(sent))[-1].error_message == said
    assert said in explain(n, ClaimState(None, None), None, clock.now())
    [group], _ = await mailing.store.read(parked.errors)
    assert fingerprint(group.error) == "<address>: 550 <address>: unknown; <address>: 450 busy"


@pytest.mark.req("LIF-08", "RES-09", "DEC-73")
async def test_attempts_that_reach_another_target_use_up_no_retry(mailing: Centre, clock: ManualClock) -> None:
    names = [f"{letter}@example.org" for letter in "abcdefgh"]
    await mailing.add_list("crew", *names)
    sent = await mailing.send("crew")
    busy = TransientFailure("421 busy")
    for reached in [*names[:5], None, names[5], None]:
        answer = replace(busy, targets=(Target(reached, TargetStatus.DELIVERED),)) if reached else busy
        mailing.adapter.answer("crew", answer)
        await mailing.deliver()
        clock.advance(60)
    n = await mailing.get(sent)
    assert (n.status, n.retry_count) == (Status.RETRYING, 2)
    assert len(await mailing.attempts(sent)) == 8
    assert (await mailing.story(sent)).count("notify_deliver attempted") == 8, "the audit has all of them"
    mailing.adapter.answer("crew", busy)
    await mailing.deliver()
    n = await mailing.get(sent)
    assert (n.status, n.retry_count) == (Status.PARKED, 3)
    assert [t.status for t in n.targets].count(TargetStatus.DELIVERED) == 6


@pytest.mark.req("LIF-05", "LIF-10", "AUD-02")
async def test_a_permanent_failure_parks_at_once(mailing: Centre) -> None:
    mailing.adapter.answer("ops", PermanentFailure("550 unknown user"))
    sent = await mailing.send()
    await mailing.deliver()
    n = await mailing.get(sent)
    assert (n.status, n.retry_count) == (Status.PARKED, 0)
    assert "550 unknown user" in str(n.last_error)
    assert (await mailing.story(sent))[1:] == ["notify_deliver attempted", "notify_deliver parked"]


@pytest.mark.req("DEC-10")
async def test_uncertain_outcome_is_retried_unless_the_list_parks_it(mailing: Centre, clock: ManualClock) -> None:
    await mailing.add_list("careful", park_uncertain=True)
    for name in ("ops", "careful"):
        mailing.adapter.answer(name, Uncertain("no answer after the dot", phase="dot"))
    retried, parked = await mailing.send(), await mailing.send("careful")
    await mailing.deliver()
    n = await mailing.get(retried)
    assert (n.status, n.retry_count) == (Status.RETRYING, 1)
    n = await mailing.get(parked)
    assert n.status is Status.PARKED
    assert "may have been delivered" in str(n.last_error)
    assert [a.outcome for a in await mailing.attempts(parked)] == ["uncertain"]


async def test_retry_after_is_honoured_only_if_longer_than_the_delay(mailing: Centre, clock: ManualClock) -> None:
    mailing.adapter.answer("ops", TransientFailure("later", retry_after=timedelta(hours=2)))
    mailing.adapter.answer("ops", TransientFailure("soon", retry_after=timedelta(seconds=1)))
    sent = await mailing.send()
    await mailing.deliver()
    assert (await mailing.get(sent)).next_attempt_at == clock.now() + timedelta(hours=2)
    clock.advance(7200)
    await mailing.deliver()
    assert (await mailing.get(sent)).next_attempt_at == clock.now() + timedelta(seconds=60)


@pytest.mark.req("DEC-11", "TBL-10", "LIF-10")
async def test_retry_goes_only_to_due_targets_and_failed_ones_are_named_at_the_end(
    mailing: Centre, clock: ManualClock
) -> None:
    await mailing.add_list("three", "a@example.org", "b@example.org", "c@example.org")
    reached, owed = Target("a@example.org", DELIVERED), Target("b@example.org", TargetStatus.DUE, "450 busy")
    refused = Target("c@example.org", FAILED, "550 unknown")
    mailing.adapter.answer("three", TransientFailure("mixed", (reached, owed, refused)))
    sent = await mailing.send("three")
    await mailing.deliver()
    n = await mailing.get(sent)
    assert (n.status, n.targets) == (Status.RETRYING, (reached, owed, refused))
    clock.advance(60)
    await mailing.deliver()
    assert [e.targets for e in mailing.adapter.envelopes] == [
        ("a@example.org", "b@example.org", "c@example.org"),
        ("b@example.org",),
    ]
    n = await mailing.get(sent)
    assert n.status is Status.PARKED
    assert "c@example.org: 550 unknown" in str(n.last_error)
    assert "b@example.org" not in str(n.last_error)
    assert [t.status for t in n.targets] == [DELIVERED, DELIVERED, FAILED]


@pytest.mark.req("CMD-08", "DEC-11", "DEC-15")
async def test_retry_by_an_operator_starts_a_cycle_for_the_failed_targets_only(
    mailing: Centre, clock: ManualClock
) -> None:
    await mailing.add_list("two", "a@example.org", "b@example.org")
    reached, refused = Target("a@example.org", DELIVERED), Target("b@example.org", FAILED, "550 unknown")
    mailing.adapter.answer("two", PermanentFailure("one failed", (reached, refused)), TransientFailure("451"))
    sent = await mailing.send("two")
    await mailing.deliver()
    assert await mailing.retry(sent)
    await mailing.deliver()
    clock.advance(60)
    await mailing.deliver()
    n = await mailing.get(sent)
    assert (n.status, n.cycle, n.retry_count) == (Status.DELIVERED, 2, 1)
    assert [e.targets for e in mailing.adapter.envelopes[1:]] == [("b@example.org",)] * 2
    assert [(a.cycle, a.outcome) for a in await mailing.attempts(sent)] == [
        (1, "permanent_failure"),
        (2, "transient_failure"),
        (2, "delivered"),
    ]


@pytest.mark.req("DSP-15", "RES-12")
async def test_type_without_an_adapter_parks_with_the_reason(mailing: Centre, clock: ManualClock) -> None:
    await mailing.add_channel("chat", type="teams")
    await mailing.add_list("chat", type="teams")
    sent = await mailing.send("chat")
    with capture_logs() as logged:
        await mailing.deliver()
    n = await mailing.get(sent)
    assert (n.status, n.last_attempt_at) == (Status.PARKED, clock.now())
    assert "no delivery adapter for type 'teams'" in str(n.last_error)
    assert (await mailing.story(sent))[1:] == ["notify_deliver attempted", "notify_deliver parked"]
    assert any(e["event"] == "attempt.no_adapter" and e["type"] == "teams" for e in logged)


@pytest.mark.req("ADP-11")
async def test_a_missing_list_parks_naming_it(mailing: Centre) -> None:
    sent = await mailing.send("nobody")
    await mailing.deliver()
    n = await mailing.get(sent)
    assert n.status is Status.PARKED
    assert "'nobody'" in str(n.last_error)
    assert mailing.adapter.envelopes == []


@pytest.mark.req("ADP-11")
@pytest.mark.bad_input(24)
async def test_a_list_emptied_before_the_first_attempt_parks_naming_it(mailing: Centre) -> None:
    sent = await mailing.send()
    await mailing.execute("delete from list_targets")
    await mailing.deliver()
    n = await mailing.get(sent)
    assert n.status is Status.PARKED
    assert "'ops'" in str(n.last_error)
    assert "no targets" in str(n.last_error)


@pytest.mark.bad_input(24)
@pytest.mark.req("DEC-11")
async def test_list_emptied_after_the_first_attempt_keeps_its_former_targets(
    mailing: Centre, clock: ManualClock
) -> None:
    mailing.adapter.answer("ops", TransientFailure("451"))
    sent = await mailing.send()
    await mailing.deliver()
    await mailing.execute("delete from list_targets")
    clock.advance(60)
    await mailing.deliver()
    assert (await mailing.get(sent)).status is Status.DELIVERED
    assert [e.targets for e in mailing.adapter.envelopes] == [("ops@example.org",)] * 2


@pytest.mark.req("ADP-11")
@pytest.mark.parametrize("trouble", ["none", "removed", "two without a default", "of another type"])
async def test_a_list_without_a_channel_parks_naming_it(centre: Centre, trouble: str) -> None:
    channel: dict[str, Any] = {}
    match trouble:
        case "removed":
            channel = {"channel_name": "gone"}
        case "two without a default":
            await centre.add_channel("one", default=False)
            await centre.add_channel("other", default=False)
        case "of another type":
            await centre.add_channel("chat", type="teams")
            channel = {"channel_name": "chat"}
    await centre.add_list("ops", **channel)
    sent = await centre.send()
    await centre.deliver()
    n = await centre.get(sent)
    assert n.status is Status.PARKED
    assert "'ops'" in str(n.last_error)
    assert "channel" in str(n.last_error)
    assert centre.adapter.envelopes == []


async def return_nothing(_: Envelope) -> Outcome:
    return None  # type: ignore[return-value]


BUGS: dict[str, tuple[Answer, str]] = {
    "an exception": (ValueError("bad state"), "ValueError: bad state"),
    "a long text": (ValueError("x" * 5000), "ValueError: xxx"),
    "an error without text": (KeyError(), "KeyError"),
    "its own time-out": (TimeoutError("inner"), "TimeoutError: inner"),
    "a cancellation nobody asked for": (asyncio.CancelledError(), "CancelledError"),
    "no outcome": (return_nothing, "NoneType"),
    "text that no store takes": (ValueError("a\x00b\ud800"), "ValueError: a"),
}


@pytest.mark.req("DSP-07", "ADP-12")
@pytest.mark.fault(62)
@pytest.mark.parametrize(("bug", "told"), BUGS.values(), ids=BUGS)
async def test_bug_in_an_adapter_parks_one_notification_and_the_batch_continues(
    mailing: Centre, bug: Answer, told: str
) -> None:
    await mailing.add_list("buggy")
    mailing.adapter.always["buggy"] = bug
    good = await mailing.send_many(3)
    bad = await mailing.send("buggy")
    with capture_logs() as logged:
        await mailing.deliver()
    n = await mailing.get(bad)
    assert n.status is Status.PARKED
    assert told in str(n.last_error)
    assert len(str(n.last_error).encode()) <= 2048
    assert "Traceback" not in str(n.last_error)
    [crashed] = [e for e in logged if e["event"] == "attempt.crashed"]
    assert (crashed["notification_id"], crashed["log_level"], crashed["exc_info"]) == (bad, "error", True)
    assert [(await mailing.get(i)).status for i in good] == [Status.DELIVERED] * 3


@pytest.mark.parametrize("outcome", [TransientFailure(""), PermanentFailure(""), Uncertain("")], ids=lambda o: o.word)
async def test_failure_without_a_reason_gets_a_default_error(mailing: Centre, outcome: Outcome) -> None:
    mailing.adapter.answer("ops", outcome)
    sent = await mailing.send()
    await mailing.deliver()
    n = await mailing.get(sent)
    assert n.status in (Status.RETRYING, Status.PARKED)
    assert "without a reason" in str(n.last_error)


async def test_an_attempt_past_its_deadline_is_uncertain(mailing: Centre) -> None:
    mailing.adapter.deadline_s = 0.05
    mailing.adapter.answer("ops", Hanging())
    sent = await mailing.send()
    await mailing.deliver()
    [attempt] = await mailing.attempts(sent)
    assert (attempt.outcome, attempt.phase) == ("uncertain", "deadline")
    assert (await mailing.get(sent)).status is Status.RETRYING


@pytest.mark.req("RTY-01", "DSP-09")
async def test_retry_policy_is_read_from_the_channel_at_each_attempt(mailing: Centre, clock: ManualClock) -> None:
    mailing.adapter.always["ops"] = TransientFailure("451")
    sent = await mailing.send()
    dispatcher = mailing.dispatcher()
    async with dispatcher.running():
        await mailing.deliver(dispatcher)
        assert (await mailing.get(sent)).next_attempt_at == clock.now() + timedelta(seconds=60)
        changed = Channel("mail", "email", {}, True, 1, max_retries=3, retry_delay_s=300)
        assert await mailing.store.write(lists.change_channel, changed, clock.now())
        clock.advance(60)
        await mailing.deliver(dispatcher)
    assert (await mailing.get(sent)).next_attempt_at == clock.now() + timedelta(seconds=300)


@pytest.mark.req("RTY-03", "RTY-05")
@pytest.mark.parametrize("bad", [0, -1], ids=str)
async def test_a_bad_number_of_retries_becomes_ten_with_a_warning(centre: Centre, clock: ManualClock, bad: int) -> None:
    await centre.add_channel(max_retries=bad, retry_delay_s=60)
    await centre.add_list()
    centre.adapter.always["ops"] = TransientFailure("451")
    sent = await centre.send()
    with capture_logs() as logged:
        for _ in range(9):
            await centre.deliver()
            clock.advance(60)
    n = await centre.get(sent)
    assert (n.status, n.retry_count) == (Status.RETRYING, 9)
    await centre.deliver()
    assert (await centre.get(sent)).status is Status.PARKED
    warned = [e for e in logged if e["log_level"] == "warning" and e.get("setting") == "max_retries"]
    assert (warned[0]["channel"], warned[0]["used"]) == ("mail", 10)


@pytest.mark.req("RTY-04", "RTY-05")
@pytest.mark.parametrize("bad", [0, -5, 1e12], ids=str)
async def test_a_bad_delay_becomes_a_minute_with_a_warning(centre: Centre, clock: ManualClock, bad: float) -> None:
    await centre.add_channel(max_retries=3, retry_delay_s=bad)
    await centre.add_list()
    centre.adapter.answer("ops", TransientFailure("451"))
    sent = await centre.send()
    with capture_logs() as logged:
        await centre.deliver()
    n = await centre.get(sent)
    assert (n.status, n.next_attempt_at) == (Status.RETRYING, clock.now() + timedelta(minutes=1))
    warned = [e for e in logged if e["log_level"] == "warning" and e.get("setting") == "retry_delay_s"]
    assert (warned[0]["channel"], warned[0]["used"]) == ("mail", 60.0)


@pytest.mark.req("DEC-04")
async def test_times_of_an_attempt_are_the_databases_even_if_the_nodes_clock_is_an_hour_off(
    mailing: Centre, clock: ManualClock
) -> None:
    wrong = ManualClock(clock.now() + timedelta(hours=1))
    sent = await mailing.send()
    dispatcher = mailing.dispatcher(clock=wrong)
    async with dispatcher.running():
        await mailing.deliver(dispatcher)
    n = await mailing.get(sent)
    assert (n.status, n.delivered_at) == (Status.DELIVERED, clock.now())
