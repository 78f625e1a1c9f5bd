"""Retry policies: when the next attempt is due, and when to stop.

`delay(attempt_count, chance)` returns how long to wait after the attempt_count-th transient failure of a cycle, or None
if no attempts are left. `attempts_max` counts the attempts that reached no further target: with 3, the third such
failure parks. After an attempt that reached some of its targets, `first_wait` applies. Jitter only adds time, so an
attempt is never earlier than the policy states.

In the settings of a list or channel a policy is one line of text:

    fixed:60s:10                    every 60 s, 10 attempts in all
    schedule:15m,30m,1h,4h,1d       one wait per failure, strictly increasing
    exponential:30s:8:2:1h          from 30 s, 8 attempts, each wait twice the last, at most 1 h (both the defaults)

each with `~0.2` at the end for up to 20 % of jitter, or the name of a preset:

    oneground                       schedule:15m,30m,1h,4h,1d
    open-notificaties               exponential:25s:8:4:52000s

The relay of an outbox also takes 0 attempts, for no limit.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import cast

from fieldpost.core.errors import InvalidInput

ATTEMPTS_MAX_DEFAULT = 10
RETRY_DELAY_S_DEFAULT = 60.0
ATTEMPTS_LIMIT = 1000
NO_LIMIT = 0
"""`attempts_max` of a policy that never stops."""
PRESETS = {"oneground": "schedule:15m,30m,1h,4h,1d", "open-notificaties": "exponential:25s:8:4:52000s"}
"""The policies of two products of the ZGW field by name."""
_DELAY_MAX = timedelta(days=366)
WAITS_LIMIT = 50
_TEXT_MAX = 1000  # enough for WAITS_LIMIT waits of maximum length
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WAIT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd])", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same delay each time."""

    wait: timedelta
    attempts_max: int
    jitter: float = 0.0

    def delay(self, attempt_count: int, chance: float) -> timedelta | None:
        if 0 < self.attempts_max <= attempt_count:
            return None
        return _with_jitter(self.wait, self.jitter, chance)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One delay per failure, in order; no attempts are left after the last."""

    waits: tuple[timedelta, ...]
    jitter: float = 0.0

    def delay(self, attempt_count: int, chance: float) -> timedelta | None:
        if attempt_count > len(self.waits):
            return None
        return _with_jitter(self.waits[attempt_count - 1], self.jitter, chance)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Each delay is `factor` times the one before, up to `wait_max`."""

    wait: timedelta
    attempts_max: int
    factor: float = 2.0
    wait_max: timedelta = timedelta(hours=1)
    jitter: float = 0.0

    def delay(self, attempt_count: int, chance: float) -> timedelta | None:
        if 0 < self.attempts_max <= attempt_count:
            return None
        # Multiply step by step up to the cap: a power with a large exponent would overflow.
        seconds, seconds_max = self.wait.total_seconds(), self.wait_max.total_seconds()
        for _ in range(attempt_count - 1):
            if seconds >= seconds_max:
                break
            seconds *= self.factor
        return _with_jitter(timedelta(seconds=min(seconds, seconds_max)), self.jitter, chance)


RetryPolicy = Fixed | Schedule | Exponential


def first_wait(policy: RetryPolicy, chance: float) -> timedelta:
    """The wait after an attempt that reached part of its targets, which uses up none of the policy's attempts."""
    match policy:
        case Schedule(waits):
            wait = waits[0] if waits else timedelta(seconds=RETRY_DELAY_S_DEFAULT)
        case Exponential(wait):
            wait = min(wait, policy.wait_max)
        case Fixed(wait):
            pass
    return _with_jitter(wait, policy.jitter, chance)


def check_fixed(max_retries: object, retry_delay_s: object) -> tuple[int, float]:
    """Return the retry settings of a channel, None replaced by the default; InvalidInput with the rule broken."""
    attempts = ATTEMPTS_MAX_DEFAULT if max_retries is None else max_retries
    if type(attempts) is not int or not 1 <= attempts <= ATTEMPTS_LIMIT:
        raise _out_of_range("max_retries", f"a whole number between 1 and {ATTEMPTS_LIMIT}", attempts)
    wait_s = RETRY_DELAY_S_DEFAULT if retry_delay_s is None else retry_delay_s
    if type(wait_s) not in (int, float) or _is_no_delay(wait_s):
        raise _out_of_range(
            "retry_delay_s", f"more than 0 and at most {_DELAY_MAX.total_seconds():.0f} seconds", wait_s
        )
    return attempts, float(cast(float, wait_s))


def fixed_from_settings(attempts_max: object, retry_delay_s: object) -> tuple[Fixed, Sequence[str]]:
    """The fixed policy of a channel, and the names of invalid stored values that were replaced by defaults.

    An invalid value, written by hand, must not cause parking without a retry, so it is replaced when read.
    """
    clamped = []
    # A bool is an int to Python; in a channel's row it is a mistake.
    if not isinstance(attempts_max, int) or isinstance(attempts_max, bool) or attempts_max <= 0:
        clamped.append("max_retries")
        attempts_max = ATTEMPTS_MAX_DEFAULT
    if not isinstance(retry_delay_s, int | float) or isinstance(retry_delay_s, bool) or _is_no_delay(retry_delay_s):
        clamped.append("retry_delay_s")
        retry_delay_s = RETRY_DELAY_S_DEFAULT
    return Fixed(timedelta(seconds=retry_delay_s), attempts_max), clamped


def parse(text: object, *, allow_no_limit: bool = False) -> RetryPolicy:
    """Parse the text form of a policy; raises InvalidInput with the rule that it breaks.

    With `allow_no_limit`, 0 attempts mean "no limit".
    """
    if type(text) is not str or len(text) > _TEXT_MAX:
        raise _invalid("must be a string such as fixed:60s:10")
    rule, tilde, share = PRESETS.get(text, text).partition("~")
    jitter = _number(share, "jitter", 0, 1) if tilde else 0.0
    kind, _, rest = rule.partition(":")
    parts = rest.split(":")
    match kind, parts:
        case "fixed", [wait, attempts]:
            return Fixed(_wait(wait), _attempts(attempts, allow_no_limit), jitter)
        case "schedule", [waits]:
            schedule = tuple(_wait(wait) for wait in waits.split(",")) if waits else ()
            if len(schedule) > WAITS_LIMIT:
                raise _invalid(f"a schedule has at most {WAITS_LIMIT} waits")
            if any(after <= before for before, after in pairwise(schedule)):
                raise _invalid("a schedule's waits must be strictly increasing")
            return Schedule(schedule, jitter)
        case "exponential", [wait, attempts, *options] if len(options) <= 2:
            factor = _number(options[0], "factor", 1, 100) if options else 2.0
            wait_max = _wait(options[1]) if len(options) > 1 else timedelta(hours=1)
            return Exponential(_wait(wait), _attempts(attempts, allow_no_limit), factor, wait_max, jitter)
        case _:
            forms = "fixed:WAIT:ATTEMPTS, schedule:WAIT,WAIT,…, exponential:WAIT:ATTEMPTS[:FACTOR[:WAIT]]"
            raise _invalid(f"must be one of {forms}, {', '.join(PRESETS)}, got {text!r}")


def to_text(policy: RetryPolicy) -> str:
    """The text that `parse` reads as this policy."""
    jitter = f"~{_decimal(policy.jitter)}" if policy.jitter else ""
    match policy:
        case Fixed(wait, attempts_max):
            return f"fixed:{_seconds(wait)}:{attempts_max}{jitter}"
        case Schedule(waits):
            return f"schedule:{','.join(_seconds(wait) for wait in waits)}{jitter}"
        case Exponential(wait, attempts_max, factor, wait_max):
            return f"exponential:{_seconds(wait)}:{attempts_max}:{_decimal(factor)}:{_seconds(wait_max)}{jitter}"


def _is_no_delay(seconds: object) -> bool:
    return not timedelta.resolution.total_seconds() <= cast(float, seconds) <= _DELAY_MAX.total_seconds()


def _wait(text: str) -> timedelta:
    found = _WAIT.fullmatch(text)
    wait = timedelta(seconds=float(found[1]) * _UNITS[found[2]]) if found else timedelta(0)
    if not timedelta(0) < wait <= _DELAY_MAX:
        raise _invalid(f"the wait {text!r} must be more than 0 and at most 366d, such as 90s, 15m, 4h or 1d")
    return wait


def _attempts(text: str, allow_no_limit: bool) -> int:
    if allow_no_limit and text == "0":
        return NO_LIMIT
    if not (text.isascii() and text.isdecimal() and 1 <= len(text) <= 4 and 1 <= int(text) <= ATTEMPTS_LIMIT):
        raise _invalid(f"attempts must be a whole number from 1 to {ATTEMPTS_LIMIT}")
    return int(text)


def _number(text: str, name: str, low: float, high: float) -> float:
    if not _NUMBER.fullmatch(text) or not low <= float(text) <= high:
        raise _invalid(f"{name} must be a number from {low:g} to {high:g}")
    return float(text)


def _seconds(wait: timedelta) -> str:
    return f"{_decimal(wait.total_seconds())}s"


def _decimal(number: float) -> str:
    """Six decimal places, as `parse` accepts, without an exponent: stored policies must parse to the same value."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _invalid(rule: str) -> InvalidInput:
    return InvalidInput("retry.invalid", f"retry: {rule}", field="retry")


def _out_of_range(name: str, rule: str, value: object) -> InvalidInput:
    shown = repr(value) if type(value) in (int, float, bool) else f"{type(value).__name__} {str(value)[:32]!r}"
    return InvalidInput("retry.invalid", f"{name} must be {rule}, got {shown}", field=name)


def _with_jitter(wait: timedelta, jitter: float, chance: float) -> timedelta:
    return wait + wait * (jitter * chance) if jitter else wait
