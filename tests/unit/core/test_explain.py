"""One true sentence for any notification: why it is not delivered yet, and what happens next and when."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.delivery.breaker import Breaker, BreakerPolicy, BreakerState, record, take_probe
from fieldpost.core.delivery.exchange import Exchange, HttpTry
from fieldpost.core.delivery.explain import ClaimState, explain, explain_attempt, next_attempt, parts
from fieldpost.core.delivery.holds import HoldKind, held_by
from fieldpost.core.delivery.outcome import Evidence
from fieldpost.core.notification import Notification, Status, Target, TargetStatus
from support.sample import FAILED, MINUTE, NOW, REACHED, a_notification

NOBODY = ClaimState(None, None)
RUNNING = ClaimState("node-a", NOW + MINUTE)
RUN_OUT = ClaimState("node-a", NOW)
A = Target("a@example.org")
LATER = {"due_at": NOW + MINUTE}
BEHIND = {"held_by": "channel:mail", "held_reason": "connection refused", "due_at": NOW + MINUTE}
HELD = "It is held by the breaker of channel:mail: connection refused. Waiting uses up no attempts."
ATTEMPTING = (
    "Node node-a is attempting delivery now. Its claim is valid until 2026-11-15 08:01:00 UTC"
    " and is renewed while the attempt runs."
)
ALONE = "the next free node attempts it while no other attempt runs there"

MONITORED = record(Breaker("channel:mail"), Evidence.FAILS, "refused", BreakerPolicy(), NOW)
OPEN = record(MONITORED, Evidence.FAILS, "refused", BreakerPolicy(failures_max=2, break_s=60), NOW)
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
        "It was parked at 2026-11-15 07:59:00 UTC: 451 try later (delivered to 1 of 2 targets)."
        " It stays parked until an operator retries or discards it.",
    ),
    **{
        f"held: {kind.value}": (
            pending(held_by=held_by(kind, "subscription:1"), held_reason="the reason", due_at=NOW + MINUTE),
            NOBODY,
            None,
            f"{sentence} It is held until 2026-11-15 08:01:00 UTC without using an attempt: the reason.",
        )
        for kind, sentence in {
            HoldKind.RATE_LIMIT: "Its delivery path accepts no more calls for now.",
            HoldKind.OUR_SIDE: "Central cannot make the call at present.",
        }.items()
    },
    "held: pause": (
        pending(held_by=held_by(HoldKind.PAUSE, "subscription:1"), held_reason="The subscription 'a' is paused by ann"),
        NOBODY,
        None,
        "The subscription 'a' is paused by ann. It is held without using an attempt until the subscription is active.",
    ),
    "due, never tried": (
        pending(),
        NOBODY,
        None,
        "The first attempt has been due since 2026-11-15 07:59:00 UTC. It starts in the next sweep that has a free"
        " slot for list:ops; the number of concurrent deliveries is limited.",
    ),
    "due again after an operator's retry": (
        pending(cycle=2, last_attempt_at=NOW - MINUTE),
        NOBODY,
        None,
        "The next attempt has been due since 2026-11-15 07:59:00 UTC. It starts in the next sweep that has a free"
        " slot for list:ops; the number of concurrent deliveries is limited.",
    ),
    "due after a failure": (
        retrying(last_attempt_at=NOW - MINUTE),
        NOBODY,
        None,
        "The next attempt has been due since 2026-11-15 07:59:00 UTC. It starts in the next sweep that has a free"
        " slot for list:ops; the number of concurrent deliveries is limited.",
    ),
    "not due yet by a step of the clock": (
        pending(**LATER),
        NOBODY,
        None,
        "The first attempt is due at 2026-11-15 08:01:00 UTC.",
    ),
    "waiting for its next attempt": (
        retrying(retry_count=2, **LATER),
        NOBODY,
        None,
        "2 attempts in this cycle failed; last error: 451 try later. Next attempt at 2026-11-15 08:01:00 UTC.",
    ),
    "waiting, partly delivered": (
        a_notification(Status.RETRYING, A, Target("b@example.org", REACHED), **LATER),
        NOBODY,
        None,
        "1 attempt in this cycle failed; last error: 451 try later (delivered to 1 of 2 targets)."
        " Next attempt at 2026-11-15 08:01:00 UTC.",
    ),
    "waiting after an attempt that reached some": (
        a_notification(Status.RETRYING, A, Target("b@example.org", REACHED), retry_count=0, **LATER),
        NOBODY,
        None,
        "The last attempt reached only some of the targets: 451 try later (delivered to 1 of 2 targets)."
        " Next attempt at 2026-11-15 08:01:00 UTC.",
    ),
    "in an attempt": (pending(), RUNNING, None, ATTEMPTING),
    "in a probe": (pending(**BEHIND), RUNNING, PROBED, ATTEMPTING),
    "orphaned": (
        pending(),
        RUN_OUT,
        None,
        "Node node-a claimed it and stopped responding; the claim expired at 2026-11-15 08:00:00 UTC."
        " The next sweep of any node takes it.",
    ),
    "orphaned twice": (
        pending(),
        replace(RUN_OUT, orphan_count=1),
        None,
        f"Node node-a stopped during its attempt, as another node did before, so {ALONE}.",
    ),
    "orphaned twice, then given back": (
        pending(),
        replace(NOBODY, orphan_count=2),
        None,
        f"The first attempt has been due since 2026-11-15 07:59:00 UTC. Two nodes stopped during earlier"
        f" attempts, so {ALONE}.",
    ),
    "orphaned alone": (
        pending(),
        replace(RUN_OUT, orphan_count=2),
        None,
        "Node node-a stopped during its attempt although no other attempt ran there, as two nodes did before."
        f" After a wait {ALONE}; a crash of the process in that attempt parks it.",
    ),
    "held, breaker open": (
        pending(**BEHIND),
        NOBODY,
        OPEN,
        f"{HELD} The breaker is open after 2 failures; the next probe is at 2026-11-15 08:01:00 UTC.",
    ),
    "held, probe due": (
        pending(**BEHIND),
        NOBODY,
        replace(OPEN, open_until=NOW),
        f"{HELD} The breaker is open after 2 failures; the next probe is due now.",
    ),
    "held, probe under way": (
        pending(**BEHIND),
        NOBODY,
        PROBED,
        f"{HELD} Node node-b is probing the channel now; if that succeeds, held notifications are released.",
    ),
    "held, prober gone": (
        pending(**BEHIND),
        NOBODY,
        replace(OPEN, state=BreakerState.HALF_OPEN, probe_owner="node-b", probe_until=NOW),
        f"{HELD} Node node-b stopped responding during its probe; another probe is due now.",
    ),
    "held after its probe was orphaned": (
        pending(**BEHIND),
        replace(RUN_OUT, orphan_count=1),
        OPEN,
        f"{HELD} The breaker is open after 2 failures; the next probe is at 2026-11-15 08:01:00 UTC.",
    ),
    "held for a moment": (
        retrying(**BEHIND),
        NOBODY,
        MONITORED,
        f"{HELD} Next attempt at 2026-11-15 08:01:00 UTC.",
    ),
    "held for a moment that is over": (
        retrying(**BEHIND | {"due_at": NOW}),
        NOBODY,
        MONITORED,
        f"{HELD} Next attempt in the next sweep.",
    ),
    "held, breaker closed": (
        pending(**BEHIND),
        NOBODY,
        Breaker("channel:mail"),
        f"{HELD} The breaker is closed again; each sweep releases a batch of held notifications.",
    ),
    "held, breaker never had a row": (
        pending(**BEHIND),
        NOBODY,
        None,
        f"{HELD} The breaker is closed again; each sweep releases a batch of held notifications.",
    ),
}


@pytest.mark.parametrize(("n", "claim", "breaker", "sentence"), SENTENCES.values(), ids=SENTENCES.keys())
def test_each_situation_has_its_sentence(
    n: Notification, claim: ClaimState, breaker: Breaker | None, sentence: str
) -> None:
    assert explain(n, claim, breaker, NOW) == sentence


def test_every_status_is_covered() -> None:
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
def test_every_row_has_a_sentence(n: Notification, claim: ClaimState, breaker: Breaker | None) -> None:
    assert explain(n, claim, breaker, NOW).endswith(".")


@given(notifications, st.none() | breakers)
def test_next_attempt_is_in_the_future_and_the_time_in_the_sentence(n: Notification, breaker: Breaker | None) -> None:
    at = next_attempt(n, breaker, NOW)
    if at is not None and not n.status.is_terminal:
        assert at > NOW
        is_probing = n.held_by is not None and breaker is not None and breaker.state is BreakerState.HALF_OPEN
        assert at in parts(explain(n, NOBODY, breaker, NOW)) or is_probing, "a probe that runs has no time"


def test_sentence_is_split_into_text_and_times() -> None:
    parked = a_notification(Status.PARKED, terminal_at=NOW, last_error="refused until 2026-99-15 08:00:00 UTC")
    before, at, after = parts(explain(parked, NOBODY, None, NOW))
    assert (before, at) == ("It was parked at ", NOW)
    assert str(after).startswith(": refused until 2026-99-15 08:00:00 UTC")
    assert parts("It has no time.") == ["It has no time."]


OK = Exchange(url="https://a.example/", tries=(HttpTry(offset_ms=0, duration_ms=9, status=204),), status=204)
TWICE = replace(OK, tries=(HttpTry(offset_ms=0, duration_ms=9, status=500), *OK.tries))


@pytest.mark.parametrize(
    ("outcome", "error", "exchanges", "sentence"),
    [
        (None, None, (), "The attempt is in progress."),
        ("delivered", None, (), "Delivered (130 ms)."),
        ("delivered", None, (OK,), "The receiver answered 204 (130 ms)."),
        ("delivered", None, (TWICE,), "The receiver answered 204 (2 tries, 130 ms)."),
        ("delivered", None, (OK, replace(OK, status=200)), "The receiver answered 200 and 204 (130 ms)."),
        ("transient_failure", "the receiver answered 500", (OK,), "The receiver answered 500 (130 ms)."),
        ("permanent_failure", "x", (OK,), "X (130 ms). It is not repeated."),
        (
            "uncertain",
            "x",
            (OK,),
            "X (130 ms). The receiver may have it already; it is sent again under the same id.",
        ),
        ("held", "no such host", (), "No such host (130 ms). This is not counted as an attempt."),
        (
            "released",
            None,
            (),
            "The node stopped before the request was sent. This is not counted as an attempt.",
        ),
        (
            "abandoned",
            None,
            (),
            "It failed. The receiver may have it already; it is sent again under the same id.",
        ),
    ],
)
def test_an_attempt_is_explained_in_one_sentence(
    outcome: str | None, error: str | None, exchanges: tuple[Exchange, ...], sentence: str
) -> None:
    assert explain_attempt(outcome, error, 130, exchanges) == sentence
    assert explain_attempt("delivered", None, 2500, ()) == "Delivered (2.5 s)."
