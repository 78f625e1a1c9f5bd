"""Attempts to several targets of a provider: a result counts for its target alone, unless the channel fails."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from fieldpost.central.adapters.ntfy.adapter import NtfyAdapter
from fieldpost.central.adapters.telegram.adapter import TelegramAdapter
from fieldpost.core.delivery.outcome import (
    Delivered,
    Evidence,
    Held,
    Outcome,
    PermanentFailure,
    TransientFailure,
    Uncertain,
)
from fieldpost.core.notification import TargetStatus
from fieldpost.core.secret import Secret
from fieldpost.testing import World
from fieldpost.testing.providers import FakeNtfy, FakeTelegram
from fieldpost.testing.world import envelope

TOKEN = "123456:canary-AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram(TOKEN) as server:
        yield server


async def deliver(server: FakeTelegram, *chats: str, deadline_s: float = 20, **changes: object) -> Outcome:
    adapter = TelegramAdapter(deadline_s=deadline_s)
    world = World({"token": Secret(TOKEN), "url": server.url}, chats, list)
    try:
        return await adapter.deliver(envelope(world, **changes))
    finally:
        await adapter.close()


def statuses(outcome: Outcome) -> dict[str, TargetStatus]:
    return {target.address: target.status for target in outcome.targets}


@pytest.mark.req("CHN-02")
@pytest.mark.dec("DEC-11")
async def test_failed_or_paused_target_does_not_affect_the_others(telegram: FakeTelegram) -> None:
    telegram.blocked.add("3")
    for _ in range(20):
        await deliver(telegram, "-4")
    outcome = await deliver(telegram, "1", "-4", "3")
    assert len(telegram.ids("1")) == 1
    assert statuses(outcome) == {"1": TargetStatus.DELIVERED, "-4": TargetStatus.DUE, "3": TargetStatus.FAILED}
    assert isinstance(outcome, Held)
    assert [pause.address for pause in outcome.pauses] == ["-4"]
    assert timedelta(seconds=1) <= outcome.pauses[0].wait <= timedelta(minutes=1)
    assert outcome.evidence is Evidence.WORKS


@pytest.mark.req("CHN-02")
async def test_too_many_requests_are_not_evidence_about_the_path(telegram: FakeTelegram) -> None:
    telegram.on().answer(429, '{"ok":false,"parameters":{"retry_after":9}}')
    outcome = await deliver(telegram, "1")
    assert isinstance(outcome, Held)
    assert (outcome.evidence, outcome.wait) == (Evidence.NONE, timedelta(seconds=9))


async def test_a_chat_that_moved_is_followed_and_reported(telegram: FakeTelegram) -> None:
    telegram.moved["-5"] = -1001234567890
    with capture_logs() as lines:
        outcome = await deliver(telegram, "-5")
    assert isinstance(outcome, Delivered)
    assert outcome.reply == "the chat is now -1001234567890: change the target of the list; 200 ok"
    assert [copy.target for copy in telegram.copies] == ["-1001234567890"]
    assert [line["to"] for line in lines if line["event"] == "target.moved"] == ["-1001234567890"]
    remark = "the chat is now -1001234567890: change the target of the list"
    outcome = await deliver(telegram, "1", "-5")
    assert isinstance(outcome, Delivered)
    assert {target.address: target.error for target in outcome.targets} == {"1": None, "-5": remark}


async def test_a_revoked_token_holds_the_channel_and_stops_the_attempt(telegram: FakeTelegram) -> None:
    telegram.on().answer(401, '{"ok":false,"description":"Unauthorized"}')
    outcome = await deliver(telegram, *map(str, range(1, 21)))
    assert isinstance(outcome, Held)
    assert outcome.evidence is Evidence.FAILS
    assert "the bot's token is not valid: 401 Unauthorized" in outcome.error
    assert len(telegram.requests) == 8


async def test_a_server_error_of_one_target_is_transient_and_the_path_works(telegram: FakeTelegram) -> None:
    telegram.on(when=lambda request: b'"chat_id":2,' in request.body).answer(502)
    outcome = await deliver(telegram, "1", "2")
    assert isinstance(outcome, TransientFailure)
    assert outcome.evidence is Evidence.WORKS
    assert outcome.error == "2: 502"
    alone = await deliver(telegram, "2")
    assert isinstance(alone, TransientFailure)
    assert alone.evidence is Evidence.FAILS


@pytest.mark.req("CHN-02", "DEC-10", "DEC-23")
@pytest.mark.parametrize(
    ("status", "outcome", "evidence"),
    [
        (200, Delivered, Evidence.WORKS),
        (400, PermanentFailure, Evidence.WORKS),
        (401, Held, Evidence.FAILS),
        (403, PermanentFailure, Evidence.WORKS),
        (408, TransientFailure, Evidence.FAILS),
        (413, PermanentFailure, Evidence.WORKS),
        (429, Held, Evidence.NONE),
        (502, TransientFailure, Evidence.FAILS),
        (None, Uncertain, Evidence.FAILS),
    ],
)
async def test_each_result_has_its_outcome_and_its_evidence(
    telegram: FakeTelegram, status: int | None, outcome: type[Outcome], evidence: Evidence
) -> None:
    if status is None:
        telegram.on().close()
    elif status != 200:
        telegram.on().answer(status)
    found = await deliver(telegram, "1")
    assert isinstance(found, outcome), found
    assert found.evidence is evidence


async def test_unreachable_provider_holds_and_is_evidence(telegram: FakeTelegram) -> None:
    await telegram.stop()
    found = await deliver(telegram, "1")
    assert isinstance(found, Held)
    assert found.evidence is Evidence.FAILS


async def test_a_target_without_an_answer_makes_the_attempt_uncertain(telegram: FakeTelegram) -> None:
    telegram.on(when=lambda request: b'"chat_id":2,' in request.body).close()
    outcome = await deliver(telegram, "1", "2", "3")
    assert isinstance(outcome, Uncertain)
    assert statuses(outcome) == {"1": TargetStatus.DELIVERED, "2": TargetStatus.DUE, "3": TargetStatus.DELIVERED}
    assert outcome.error.startswith("2: the request was sent, but ")


@pytest.mark.req("CHN-05")
async def test_each_target_records_that_its_text_was_truncated(telegram: FakeTelegram) -> None:
    outcome = await deliver(telegram, "1", "2", body="x" * 256 * 1024)
    assert isinstance(outcome, Delivered)
    assert {target.truncated_to for target in outcome.targets} == {len(telegram.copies[0].text) - 40}


async def test_targets_left_over_at_the_deadline_stay_due(telegram: FakeTelegram) -> None:
    telegram.on().delay(1.2)
    outcome = await deliver(telegram, *map(str, range(1, 11)), deadline_s=1.0)
    assert isinstance(outcome, Uncertain)
    assert list(statuses(outcome).values()).count(TargetStatus.DUE) == 10


async def test_all_targets_that_fail_are_named(telegram: FakeTelegram) -> None:
    telegram.unknown |= {"1", "2"}
    outcome = await deliver(telegram, "1", "2")
    assert isinstance(outcome, PermanentFailure)
    assert outcome.error == "2 targets (1, 2): 400 Bad Request: chat not found"


@pytest.mark.req("CHN-02")
async def test_a_used_up_quota_pauses_the_channel_and_stops_the_attempt() -> None:
    async with FakeNtfy(daily_max=8) as server:
        adapter = NtfyAdapter()
        world = World({"url": server.url}, tuple(f"topic-{number}" for number in range(20)), list)
        outcome = await adapter.deliver(envelope(world))
        again = await adapter.deliver(envelope(world))
        await adapter.close()
    assert isinstance(again, Held)
    assert {pause.address for pause in again.pauses} == {None}
    assert {pause.wait for pause in again.pauses} == {timedelta(hours=1)}
    assert len(server.copies) == 8
    assert list(statuses(outcome).values()) == [TargetStatus.DELIVERED] * 8 + [TargetStatus.DUE] * 12
