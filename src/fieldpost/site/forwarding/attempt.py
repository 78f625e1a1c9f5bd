"""One attempt of a cached call, in the agent or in the calling script's process: try, then decide."""

import asyncio
import logging
from datetime import timedelta

from fieldpost.clock import Clock
from fieldpost.core.sites.forwarding import CallDecision, CallPolicy, NotNow, Park, decide_call
from fieldpost.core.sites.message import Message
from fieldpost.core.text import truncate
from fieldpost.site.carriers.carrier import CallCarrier, D

OVERTIME_S = 5.0
"""How long an attempt may exceed its timeout before it is cancelled from outside."""
CLAIM_MARGIN_S = 15.0
"""How long the claim exceeds the timeout of the attempt: for the overtime and for writing the result."""
UNDEFINED_S = 10.0
"""The timeout without a definition; no call is made then."""

_log = logging.getLogger("fieldpost.site")  # not structlog: scripts import this module


def claim_time(definition: D | None) -> timedelta:
    """The duration of the claim for an attempt."""
    return timedelta(seconds=_timeout_s(definition) + CLAIM_MARGIN_S)


async def attempt(
    carrier: CallCarrier[D], message: Message, definition: D | None, clock: Clock, *, is_caller: bool
) -> CallDecision:
    """Try the call once and decide. `is_caller`: the script that issued the call waits for the answer."""
    policy = CallPolicy(timedelta(0), 0)
    if definition is not None:
        policy = CallPolicy(definition.retry_interval, definition.retries_max)
    is_first = message.last_attempt_at is None
    limit_s = _timeout_s(definition) + OVERTIME_S
    try:
        async with asyncio.timeout(limit_s):
            answer = await carrier.attempt(message, definition)
    except TimeoutError:
        answer = NotNow(f"the attempt did not end within {limit_s:g} s; the call may have been carried out")
    except Exception as error:
        # An exception of a carrier is a bug, which a retry would repeat: a person must see it.
        _log.exception("call.crashed message_id=%s category=%s", message.message_id, message.category.value)
        return Park(truncate(f"internal error: {type(error).__name__}: {error}"), not is_first)
    return decide_call(
        answer, policy, clock.now(), retry_count=message.retry_count, is_first=is_first, is_caller=is_caller
    )


def _timeout_s(definition: D | None) -> float:
    return UNDEFINED_S if definition is None else definition.timeout_s
