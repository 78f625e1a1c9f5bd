"""A test of a channel: one envelope to one target, outside the queue."""

import asyncio
from dataclasses import dataclass

import structlog

from fieldpost.core.adapter import Adapter, Envelope
from fieldpost.core.outcome import Outcome, PermanentFailure, Uncertain

TEST_S = 120.0
"""How long a user waits for the outcome of a test."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of a test and its transcript, without secrets."""

    outcome: Outcome
    said: tuple[str, ...]


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


def open_gate() -> None:
    """The gate of a test, which has no claim to lose."""
