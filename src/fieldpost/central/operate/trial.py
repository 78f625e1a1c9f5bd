"""Tests of channels and receivers: one attempt outside the queue, its transcript, and how far it came."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from fieldpost.core.delivery.adapter import Adapter, AttemptPhase, Envelope
from fieldpost.core.delivery.outcome import Delivered, Outcome, PermanentFailure, Uncertain

TEST_S = 120.0
"""The time limit of a test."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of a test and its transcript, without secrets."""

    outcome: Outcome
    transcript: tuple[str, ...]
    cost: str | None = None
    """The cost of the test's text, if the provider bills by its length."""


@dataclass(frozen=True, slots=True)
class TrialStep:
    """One phase of a test: passed, failed, or not reached."""

    title: str
    state: str
    advice: str | None = None


async def deliver_test(adapter: Adapter, envelope: Envelope) -> Outcome:
    """The outcome of one attempt; a crash of the adapter is a permanent failure."""
    timeout_s = min(TEST_S, adapter.deadline_s)
    try:
        async with asyncio.timeout(timeout_s) as deadline:
            return await adapter.deliver(envelope)
    except Exception as error:
        if isinstance(error, TimeoutError) and deadline.expired():
            return Uncertain(f"no result within {timeout_s:g} s", phase="deadline")
        log.exception("channel.test_crashed", type=adapter.type)
        return PermanentFailure(f"the {adapter.type} adapter failed: {type(error).__name__}: {error}", phase="bug")


def trial_steps(phases: Sequence[AttemptPhase], settings: Mapping[str, object], outcome: Outcome) -> list[TrialStep]:
    """The phases of an attempt and how far the test came; empty if the failed phase is not a declared one."""
    occurring = [p for p in phases if not p.setting or settings.get(p.setting) in p.values]
    if isinstance(outcome, Delivered):
        return [TrialStep(phase.title, "passed") for phase in occurring]
    names = [phase.name for phase in occurring]
    if outcome.phase not in names:
        return []
    end = names.index(outcome.phase)
    return [
        TrialStep(
            phase.title,
            "passed" if place < end else "failed" if place == end else "not reached",
            phase.advice[:1].upper() + phase.advice[1:] if place == end else None,
        )
        for place, phase in enumerate(occurring)
    ]
