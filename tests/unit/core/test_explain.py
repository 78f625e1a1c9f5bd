"""One true sentence for any notification: why it is not delivered yet, and what happens next and when."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.breaker import Breaker, BreakerPolicy, BreakerState, record, take_probe
from fieldpost.core.explain import ClaimState, explain, parts
from fieldpost.core.notification import Notification, Status, Target, TargetStatus
from fieldpost.core.outcome import Held
from support.sample import FAILED, MINUTE, NOW, REACHED, a_notification

NOBODY = ClaimState(None, None)
RUNNING = ClaimState("node-a", NOW + MINUTE)
RUN_OUT = ClaimState("node-a", NOW)
A = Target("a@example.org")
LATER = {"due_at": NOW + MINUTE}
BEHIND = {"held_by": "channel:mail", "held_reason": "connection refused", "due_at": NOW + MINUTE}
HELD = "It is held behind channel:mail, nothing is counted against it: connection refused."
ATTEMPTING = (
    "Node node-a is attempting it now; its claim lasts until 2026-11-15 08:01:00 UTC"
    " and is renewed while the attempt runs."
)
ALONE = "the next free node attempts it with nothing beside it"

MONITORED = record(Breaker("channel:mail"), Held("refused"), BreakerPolicy(), NOW)
OPEN = record(MONITORED, Held("refused"), BreakerPolicy(failures_max=2, break_s=60), NOW)
PROBED = take_probe(OPEN, "node-b", NOW + MINUTE, 90)


def pending(**more: Any) -> Notification:
    return a_notification(Status.PENDING, A, **more)


def retrying(**more: Any) -> Notification:
    return a_notification(Status.RETRYING, A, **more)


SENTENCES: dict[str, tuple[Notification, ClaimState, Breaker | None, str]] = {
    "delivered": (
        a_notification(Status.DELIVERED, replace(A, status=REACHED), Target("b@example.org", REACHED)),
        NOBODY,
        None,
        "It was delivered at 2026-11-15 07:59:00 UTC to 2 targets.",
    ),
    "discarded": (
        a_notification(Status.DISCARDED, last_error="550 no"),
        NOBODY,
        None,
        "An operator discarded it at 2026-11-15 07:59:00 UTC; it will not be delivered.",
    ),
    "parked": (
        a_notification(Status.PARKED, replace(A, status=FAILED), Target("b@example.org", REACHED)),
        NOBODY,
        None,
        "It was parked at 2026-11-15 07:59:00 UTC: 451 try later (1 of 2 targets have it)."
        " It waits for an operator to retry or discard it.",
    ),
    "due, never tried": (
        pending(),
        NOBODY,
        None,
        "Its first attempt has been due since 2026-11-15 07:59:00 UTC; it is taken by the next sweep with a free slot"
        " (only so many go to list:ops at a time).",
    ),
    "due again after an operator's retry": (
        pending(cycle=2, last_attempt_at=NOW - MINUTE),
        NOBODY,
        None,
        "Its next attempt has been due since 2026-11-15 07:59:00 UTC; it is taken by the next sweep with a free slot"
        " (only so many go to list:ops at a time).",
    ),
    "due after a failure": (
        retrying(last_attempt_at=NOW - MINUTE),
        NOBODY,
        None,
        "Its next attempt has been due since 2026-11-15 07:59:00 UTC; it is taken by the next sweep with a free slot"
        " (only so many go to list:ops at a time).",
    ),
    "not due yet by a step of the clock": (
        pending(**LATER),
        NOBODY,
        None,
        "Its first attempt is due at 2026-11-15 08:01:00 UTC.",
    ),
    "waiting for its next attempt": (
        retrying(retry_count=2, **LATER),
        NOBODY,
        None,
        "2 attempts of this cycle failed, the last with: 451 try later. Next attempt at 2026-11-15 08:01:00 UTC.",
    ),
    "waiting, partly delivered": (
        a_notification(Status.RETRYING, A, Target("b@example.org", REACHED), **LATER),
        NOBODY,
        None,
        "1 attempt of this cycle failed, the last with: 451 try later (1 of 2 targets have it)."
        " Next attempt at 2026-11-15 08:01:00 UTC.",
    ),
    "in an attempt": (pending(), RUNNING, None, ATTEMPTING),
    "in a probe": (pending(**BEHIND), RUNNING, PROBED, ATTEMPTING),
    "orphaned": (
        pending(),
        RUN_OUT,
        None,
        "Node node-a took it and was not heard of again, so its claim ran out at 2026-11-15 08:00:00 UTC;"
        " the next sweep of any node takes it up.",
    ),
    "orphaned twice": (
        pending(),
        replace(RUN_OUT, orphan_count=1),
        None,
        f"Its attempt on node node-a ended with that node, not for the first time; {ALONE}.",
    ),
    "orphaned twice, then given back": (
        pending(),
        replace(NOBODY, orphan_count=2),
        None,
        f"Its first attempt has been due since 2026-11-15 07:59:00 UTC; {ALONE}, since two attempts ended with their"
        " node.",
    ),
    "orphaned alone": (
        pending(),
        replace(RUN_OUT, orphan_count=2),
        None,
        "Its attempt on node node-a, with nothing beside it, ended with that node as those before;"
        " the next sweep of any node parks it.",
    ),
    "held, breaker open": (
        pending(**BEHIND),
        NOBODY,
        OPEN,
        f"{HELD} The breaker is open after 2 failures; one probe follows at 2026-11-15 08:01:00 UTC.",
    ),
    "held, probe due": (
        pending(**BEHIND),
        NOBODY,
        replace(OPEN, open_until=NOW),
        f"{HELD} The breaker is open after 2 failures; one probe is due now.",
    ),
    "held, probe under way": (
        pending(**BEHIND),
        NOBODY,
        PROBED,
        f"{HELD} Node node-b is probing the channel now; if that works, all held rows come free.",
    ),
    "held, prober gone": (
        pending(**BEHIND),
        NOBODY,
        replace(OPEN, state=BreakerState.HALF_OPEN, probe_owner="node-b", probe_until=NOW),
        f"{HELD} Node node-b was probing the channel and was not heard of again; another probe is due now.",
    ),
    "held after its probe was orphaned": (
        pending(**BEHIND),
        replace(RUN_OUT, orphan_count=1),
        OPEN,
        f"{HELD} The breaker is open after 2 failures; one probe follows at 2026-11-15 08:01:00 UTC.",
    ),
    "held for a moment": (
        retrying(**BEHIND),
        NOBODY,
        MONITORED,
        f"{HELD} It is attempted again at 2026-11-15 08:01:00 UTC.",
    ),
    "held for a moment that is over": (
        retrying(**BEHIND | {"due_at": NOW}),
        NOBODY,
        MONITORED,
        f"{HELD} It is attempted again by the next sweep.",
    ),
    "held, breaker closed": (
        pending(**BEHIND),
        NOBODY,
        Breaker("channel:mail"),
        f"{HELD} The breaker has closed; held rows come free in batches, sweep by sweep.",
    ),
    "held, breaker never had a row": (
        pending(**BEHIND),
        NOBODY,
        None,
        f"{HELD} The breaker has closed; held rows come free in batches, sweep by sweep.",
    ),
}


@pytest.mark.parametrize(("n", "claim", "breaker", "sentence"), SENTENCES.values(), ids=SENTENCES.keys())
def test_each_situation_has_its_sentence(
    n: Notification, claim: ClaimState, breaker: Breaker | None, sentence: str
) -> None:
    assert explain(n, claim, breaker, NOW) == sentence


def test_every_status_is_among_them() -> None:
    assert {n.status for n, _, _, _ in SENTENCES.values()} == set(Status)


moments = st.none() | st.sampled_from([NOW - MINUTE, NOW, NOW + MINUTE])
names = st.none() | st.sampled_from(["node-a", "channel:mail", ""])
texts = st.none() | st.text(max_size=5)
notifications = st.builds(
    a_notification,
    st.sampled_from(Status),
    st.builds(Target, st.just("a@example.org"), st.sampled_from(TargetStatus)),
    due_at=moments,
    terminal_at=moments,
    delivered_at=moments,
    last_attempt_at=moments,
    next_attempt_at=moments,
    retry_count=st.integers(0, 3),
    last_error=texts,
    held_by=names,
    held_reason=texts,
)
breakers = st.builds(
    Breaker,
    st.just("channel:mail"),
    st.sampled_from(BreakerState),
    st.integers(0, 3),
    open_until=moments,
    probe_owner=names,
    probe_until=moments,
)


@given(notifications, st.builds(ClaimState, names, moments, st.integers(0, 4)), st.none() | breakers)
def test_whatever_a_row_holds_there_is_a_sentence(n: Notification, claim: ClaimState, breaker: Breaker | None) -> None:
    assert explain(n, claim, breaker, NOW).endswith(".")


def test_the_moments_of_a_sentence_can_be_told_apart_from_its_words() -> None:
    parked = a_notification(Status.PARKED, terminal_at=NOW, last_error="refused until 2026-99-15 08:00:00 UTC")
    before, at, after = parts(explain(parked, NOBODY, None, NOW))
    assert (before, at) == ("It was parked at ", NOW)
    assert str(after).startswith(": refused until 2026-99-15 08:00:00 UTC")
    assert parts("It has no time.") == ["It has no time."]
