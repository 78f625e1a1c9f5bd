"""Intents: given, sent, settled, cancelled and expired, on both stores."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fieldpost.central.commands.open_intents import OpenIntents
from fieldpost.central.operate.intents import IntentOptions, Intents
from fieldpost.central.operate.sites import SiteActions
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.schema.audit_tables import audit as audit_table
from fieldpost.central.store.sites import intents
from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import ConfigError, Conflict, Denied, InvalidInput, NotFound
from fieldpost.core.ids import new_ids
from fieldpost.core.sites.intent import Intent, IntentKind, IntentOutcome, IntentState
from fieldpost.link.messages import CommandResult
from fieldpost.testing import ManualClock
from support.centre import SITE, Centre

OPERATOR = Actor("olga", Role.OPERATOR)
ADMIN = Actor("ada", Role.ADMIN)
ONE, TWO, THREE = new_ids(ManualClock().now(), bytes(range(30)))


@pytest.fixture
def opened(centre: Centre) -> OpenIntents:
    return OpenIntents(centre.store)


@pytest.fixture
async def given(centre: Centre) -> Intents:
    sites = SiteActions(centre.store, centre.clock)
    for name in (SITE, "north"):
        await sites.add(ADMIN, name)
    return Intents(centre.store, centre.clock, IntentOptions(expire_after_h=24))


async def stored(centre: Centre, intent: Intent) -> Intent:
    found = await centre.store.read(intents.get, intent.intent_id)
    assert found is not None
    return found


@pytest.mark.req("DEC-27", "TEL-09")
async def test_intent_waits_is_sent_and_stores_the_answer_of_the_site(
    centre: Centre, given: Intents, opened: OpenIntents, clock: ManualClock
) -> None:
    (one,) = await given.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[ONE], reason="the system is back")
    assert await stored(centre, one) == one
    assert (one.state, one.actor, one.message_id) == (IntentState.WAITING, "olga", ONE)
    assert (await opened.counts([]))[0] == {SITE: 1}
    assert await opened.of([SITE, "north"], 10) == [one]
    clock.advance(60)
    (command,) = await opened.to_send([one])
    assert (command.intent_id, command.kind, command.arguments) == (one.intent_id, "retry", {"message_id": ONE})
    sent = await stored(centre, one)
    assert (sent.state, sent.attempts, sent.sent_at) == (IntentState.SENT, 1, clock.now())
    done = await opened.settle(SITE, CommandResult(one.intent_id, "applied"))
    assert done == await stored(centre, one)
    assert (done.state, done.outcome, done.done_at) == (IntentState.DONE, IntentOutcome.APPLIED, clock.now())
    assert (await opened.counts([]))[0] == {}


async def test_several_calls_get_an_intent_each_and_each_is_audited_with_who_and_why(
    centre: Centre, given: Intents
) -> None:
    made = await given.create(OPERATOR, SITE, IntentKind.DISCARD, message_ids=[ONE, TWO, ONE], reason="test data")
    assert [intent.message_id for intent in made] == [ONE, TWO]
    for message_id in (ONE, TWO):
        (entry,) = await centre.store.read(audit.of_notification, message_id)
        assert (entry.actor, entry.request_summary, entry.source_site_id) == ("olga", "intent.discard", SITE)
        assert entry.extra is not None
        assert entry.extra["reason"] == "test data"


async def test_calls_of_several_sites_get_their_intents_together(centre: Centre, given: Intents) -> None:
    named = [(SITE, ONE), ("north", ONE), (SITE, TWO), (SITE, ONE)]
    made = await given.create_each(OPERATOR, IntentKind.RETRY, named, reason="the line is back")
    assert [(intent.site, intent.message_id) for intent in made] == [(SITE, ONE), ("north", ONE), (SITE, TWO)]
    assert [await stored(centre, intent) for intent in made] == made
    entries = await centre.store.read(audit.of_notification, ONE)
    assert {(entry.source_site_id, entry.request_summary) for entry in entries} == {
        (SITE, "intent.retry"),
        ("north", "intent.retry"),
    }


async def test_action_on_several_sites_that_fails_at_one_changes_nothing(
    centre: Centre, given: Intents, opened: OpenIntents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldpost.central.operate.intents.OPEN_MAX", 1)
    (full,) = await given.create(OPERATOR, "north", IntentKind.RETRY, message_ids=[THREE])
    for last, error in ((("south", TWO), NotFound), (("no\nsite", TWO), NotFound), (("north", TWO), Conflict)):
        with pytest.raises(error):
            await given.create_each(OPERATOR, IntentKind.DISCARD, [(SITE, ONE), last])
    with pytest.raises(InvalidInput):
        await given.create_each(OPERATOR, IntentKind.DISCARD, [])
    await centre.execute("alter table audit rename to away")
    with pytest.raises(Exception, match="audit"):
        await given.create_each(OPERATOR, IntentKind.DISCARD, [(SITE, ONE)])
    await centre.execute("alter table away rename to audit")
    assert await opened.of([SITE, "north"], 10) == [full]
    for message_id in (ONE, TWO):
        assert await centre.store.read(audit.of_notification, message_id) == []


@pytest.mark.threat(7)
async def test_viewer_can_neither_create_nor_cancel_an_intent(
    centre: Centre, given: Intents, opened: OpenIntents
) -> None:
    viewer = Actor("vera", Role.VIEWER)
    (one,) = await given.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[ONE])
    with pytest.raises(Denied):
        await given.create(viewer, SITE, IntentKind.RETRY, message_ids=[TWO])
    with pytest.raises(Denied):
        await given.cancel(viewer, one.intent_id)
    assert (await opened.counts([]))[0] == {SITE: 1}


async def test_impossible_intent_is_rejected(given: Intents, opened: OpenIntents) -> None:
    cases: list[tuple[IntentKind, dict[str, Any], str]] = [
        (IntentKind.RETRY, {}, "intent.messages"),
        (IntentKind.RETRY, {"message_ids": ["nonsense"]}, "intent.bad_id"),
        (IntentKind.RETRY, {"message_ids": [ONE] * 501}, "intent.messages"),
        (IntentKind.LIST_PARKED, {"message_ids": [ONE]}, "intent.messages"),
        (IntentKind.LIST_PARKED, {"arguments": {"limit": 501}}, "limit.range"),
        (IntentKind.LIST_PARKED, {"arguments": {"severity": "error"}}, "intent.argument"),
        (IntentKind.RETRY, {"message_ids": [ONE], "arguments": {"limit": 1}}, "intent.argument"),
        (IntentKind.QUERY_EVENTS, {"arguments": {"target": "a\nb"}}, "text.control"),
        (IntentKind.RETRY, {"message_ids": [ONE], "reason": ""}, "text.empty"),
    ]
    for kind, more, code in cases:
        with pytest.raises(InvalidInput) as raised:
            await given.create(OPERATOR, SITE, kind, **more)
        assert raised.value.code == code
    assert (await opened.counts([]))[0] == {}


async def test_unknown_site_is_reported(given: Intents) -> None:
    for site in ("south", "no\nsite"):
        with pytest.raises(NotFound) as raised:
            await given.create(OPERATOR, site, IntentKind.LIST_PARKED)
        assert raised.value.code == "site.unknown"


@pytest.mark.req("DEC-27")
async def test_cancelled_waiting_intent_is_never_sent(
    centre: Centre, given: Intents, opened: OpenIntents, clock: ManualClock
) -> None:
    one, two = await given.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[ONE, TWO])
    cancelled = await given.cancel(OPERATOR, one.intent_id)
    assert (cancelled.state, cancelled.detail) == (IntentState.CANCELLED, "by olga")
    assert [command.intent_id for command in await opened.to_send([one, two])] == [two.intent_id]
    for intent in (one, two):
        with pytest.raises(Conflict) as raised:
            await given.cancel(OPERATOR, intent.intent_id)
        assert raised.value.code == "intent.not_waiting"
    with pytest.raises(NotFound):
        await given.cancel(OPERATOR, THREE)
    found = await centre.store.read(lambda conn: conn.execute(audit_table.select()).all())
    assert sum(row.request_summary == "intent.cancel" for row in found) == 1


async def test_neither_cancelling_nor_an_answer_changes_an_intent_that_was_sent_after_it_was_read(
    centre: Centre, given: Intents, opened: OpenIntents
) -> None:
    (one,) = await given.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[ONE])
    assert await opened.to_send([one])
    sent = await stored(centre, one)
    assert not await centre.store.write(intents.cancel, one.intent_id, "by olga", now=centre.store.now())
    assert await stored(centre, one) == sent
    answered = replace(one, outcome=IntentOutcome.APPLIED)
    assert not await centre.store.write(intents.settle, answered, now=centre.clock.now())
    assert await stored(centre, one) == sent


@pytest.mark.req("DEC-27")
async def test_intent_that_waits_too_long_expires_as_unreachable_and_is_never_sent(
    centre: Centre, given: Intents, opened: OpenIntents, clock: ManualClock
) -> None:
    one, two = await given.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[ONE, TWO])
    await opened.to_send([two])
    clock.advance(24 * 3600 - 1)
    await opened.expire()
    assert (await opened.counts([]))[0] == {SITE: 2}
    clock.advance(1)
    assert await opened.to_send([one]) == []
    await opened.expire()
    for intent, words in ((one, "never sent"), (two, "may have been applied")):
        found = await stored(centre, intent)
        assert (found.state, found.outcome) == (IntentState.EXPIRED, IntentOutcome.SITE_UNREACHABLE)
        assert found.detail is not None
        assert words in found.detail
    # The site's word on what was sent is the truth, however late.
    late = await opened.settle(SITE, CommandResult(two.intent_id, "applied"))
    assert (late.state, late.outcome) == (IntentState.DONE, IntentOutcome.APPLIED)
    never = await opened.settle(SITE, CommandResult(one.intent_id, "applied"))
    assert never.state is IntentState.EXPIRED


@pytest.mark.threat(6)
async def test_site_settles_only_its_own_intents_and_each_once(
    centre: Centre, given: Intents, opened: OpenIntents
) -> None:
    (one,) = await given.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[ONE])
    await opened.to_send([one])
    with pytest.raises(NotFound):
        await opened.settle("north", CommandResult(one.intent_id, "applied"))
    with pytest.raises(NotFound):
        await opened.settle(SITE, CommandResult("nonsense", "applied"))
    with pytest.raises(InvalidInput):
        await opened.settle(SITE, CommandResult(one.intent_id, "splendid"))
    assert (await stored(centre, one)).state is IntentState.SENT
    await opened.settle(SITE, CommandResult(one.intent_id, "not_parked", "nothing there"))
    again = await opened.settle(SITE, CommandResult(one.intent_id, "applied"))
    assert (again.outcome, again.detail) == (IntentOutcome.NOT_PARKED, "nothing there")


@pytest.mark.req("TEL-06")
async def test_answer_to_a_query_is_stored_with_the_intent_and_limited(
    centre: Centre, given: Intents, opened: OpenIntents
) -> None:
    (look,) = await given.create(OPERATOR, SITE, IntentKind.LIST_PARKED, arguments={"limit": 2})
    (command,) = await opened.to_send([look])
    assert command.arguments == {"limit": 2}
    rows = ({"call_id": ONE, "last_error": "no\x00body", "retry_count": 3}, {"call_id": TWO})
    await opened.settle(SITE, CommandResult(look.intent_id, "applied", None, rows, "2"))
    found = await stored(centre, look)
    assert found.answer == {
        "rows": [{"call_id": ONE, "last_error": "no�body", "retry_count": 3}, {"call_id": TWO}],
        "is_whole": True,
        "next": "2",
    }
    (large,) = await given.create(OPERATOR, SITE, IntentKind.QUERY_EVENTS)
    await opened.to_send([large])
    told = CommandResult(large.intent_id, "applied", None, ({"text": "x" * 2000},) * 500)
    kept = (await opened.settle(SITE, told)).answer
    assert kept is not None
    assert kept["is_whole"] is False
    assert isinstance(kept["rows"], list)
    assert 100 < len(kept["rows"]) < 200


async def test_too_many_open_intents_of_a_site_are_refused(given: Intents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fieldpost.central.operate.intents.OPEN_MAX", 2)
    await given.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[ONE, TWO])
    with pytest.raises(Conflict) as raised:
        await given.create(OPERATOR, SITE, IntentKind.RETRY, message_ids=[THREE])
    assert raised.value.code == "intent.too_many"
    await given.create(OPERATOR, "north", IntentKind.RETRY, message_ids=[THREE])


@pytest.mark.parametrize("hours", [0, -1, 721, float("nan")])
def test_an_expiry_out_of_range_is_refused(hours: float) -> None:
    with pytest.raises(ConfigError) as raised:
        IntentOptions(expire_after_h=hours)
    assert raised.value.field == "intents.expire_after_h"
    assert IntentOptions().expire_after_h == timedelta(days=7) / timedelta(hours=1)
