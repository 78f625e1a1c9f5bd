"""The breaker against a model that knows only: how many failures, blocked until when, whose probe until when."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fieldpost.core.delivery.breaker import (
    Breaker,
    BreakerPolicy,
    BreakerState,
    give_back_probe,
    is_blocked,
    next_probe,
    record,
    reset,
    take_probe,
)
from fieldpost.core.delivery.outcome import Delivered, Evidence, Outcome, PermanentFailure, TransientFailure
from support.sample import NOW

POLICY = BreakerPolicy(failures_max=3, break_s=60, lapse_s=300, hold_s=10)
LEASE_S = 90
owners = st.sampled_from(["node-a", "node-b"])
answers = st.sampled_from([Delivered(), TransientFailure("451"), PermanentFailure("550")])


@dataclass
class Model:
    failures: int = 0
    failed_at: datetime | None = None
    blocked_until: datetime | None = None
    prober: str | None = None
    probe_until: datetime | None = None

    def fail(self, now: datetime) -> None:
        is_forgotten = self.failed_at is not None and now - self.failed_at > timedelta(seconds=POLICY.lapse_s)
        if is_forgotten and self.blocked_until is None:
            self.failures = 0
        self.failures += 1
        self.failed_at = now
        if self.prober is not None or (self.blocked_until is None and self.failures >= POLICY.failures_max):
            self.blocked_until = now + timedelta(seconds=POLICY.break_s)
        self.prober = self.probe_until = None

    def may_probe(self, now: datetime) -> bool:
        wait = self.probe_until if self.prober is not None else self.blocked_until
        return wait is not None and now >= wait


class BreakerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker("channel:mail", version=5)
        self.model = Model()
        self.now = NOW

    @rule(answer=answers)
    def the_channel_answers(self, answer: Outcome) -> None:
        self.model = Model()
        self.become(record(self.breaker, answer.evidence, answer.error or "", POLICY, self.now))

    @rule()
    def the_channel_fails(self) -> None:
        self.model.fail(self.now)
        self.become(record(self.breaker, Evidence.FAILS, "refused", POLICY, self.now))

    @rule()
    def a_send_is_not_answered(self) -> None:
        if self.model.prober is not None:
            self.model.fail(self.now)
        self.become(record(self.breaker, Evidence.NONE, "no answer", POLICY, self.now))

    @rule(owner=owners)
    def a_node_asks_for_the_probe(self, owner: str) -> None:
        taken = take_probe(self.breaker, owner, self.now, LEASE_S)
        assert (taken is not None) == self.model.may_probe(self.now)
        if taken is not None:
            self.model.prober, self.model.probe_until = owner, self.now + timedelta(seconds=LEASE_S)
            self.become(taken)

    @rule(owner=owners)
    def a_node_gives_its_probe_back(self, owner: str) -> None:
        if self.model.prober == owner:
            self.model.prober = self.model.probe_until = None
            self.model.blocked_until = self.now
        self.become(give_back_probe(self.breaker, owner, self.now))

    @rule()
    def an_operator_resets_it(self) -> None:
        self.model = Model()
        self.become(reset(self.breaker))

    @rule(seconds=st.sampled_from([-60, 1, 10, 59, 60, LEASE_S, 300, 301]))
    def the_clock_moves(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    def become(self, breaker: Breaker) -> None:
        if breaker == self.breaker:
            assert breaker is self.breaker, "what has not changed is not to be written"
        assert (breaker.key, breaker.version) == ("channel:mail", 5), "key and version are the store's"
        self.breaker = breaker

    @invariant()
    def it_is_as_the_model_has_it(self) -> None:
        model, breaker = self.model, self.breaker
        assert is_blocked(breaker) == (model.blocked_until is not None)
        assert breaker.failures == model.failures
        if model.blocked_until is None:
            assert breaker.state is BreakerState.CLOSED
            assert breaker.health == ("monitored" if model.failures else "healthy")
            assert breaker.failures < POLICY.failures_max
            assert next_probe(breaker, POLICY, self.now) == self.now + timedelta(seconds=POLICY.hold_s)
        else:
            assert breaker.state is (BreakerState.OPEN if model.prober is None else BreakerState.HALF_OPEN)
            assert breaker.health == "blocked"
            assert next_probe(breaker, POLICY, self.now) == (model.probe_until or model.blocked_until)
        assert (breaker.probe_owner, breaker.probe_until) == (model.prober, model.probe_until)
        assert (breaker.first_failure_at is None) == (breaker.last_failure_at is None) == (breaker.failures == 0)


TestBreaker = pytest.mark.req("DEC-22")(BreakerMachine.TestCase)
TestBreaker.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
