"""Numbers, durations and sizes as texts for people."""

from datetime import timedelta

_SINGLE = {"1 s": "second", "1 min": "minute", "1 h": "hour", "1 d": "day"}


def age(span: timedelta | float | None) -> str:
    """A duration in its two largest units: `47 s`, `12 min`, `3 h 5 min`, `6 d 2 h`."""
    if span is None:
        return "–"
    seconds = int(span.total_seconds() if isinstance(span, timedelta) else span)
    if seconds < 60:
        return f"{max(seconds, 0)} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 and days < 10 else f"{days} d"


def recent(span: timedelta | float) -> str:
    """A time that ends now: `the last minute`, `the last 5 min`."""
    text = age(span)
    return f"the last {_SINGLE.get(text, text)}"


def offset(seconds: float) -> str:
    """A difference between two clocks: `+1.5 s`, `-0.2 s`, or `0.0 s`."""
    rounded = round(seconds, 1)
    return f"{rounded:+.1f} s" if rounded else "0.0 s"


def number(value: float | None) -> str:
    """A number with a thin space between thousands, which reads the same in every locale."""
    if value is None:
        return "–"
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return text.replace(",", "\u202f")


def plural(count: int, noun: str) -> str:
    """`1 target`, `2 targets`, `3 entries`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{count} {noun[:-1]}ies"
    return f"{count} {noun}{'es' if noun.endswith('ch') else 's'}"


def size(value: float | None) -> str:
    """A number of bytes with its unit: `50.0 MB`."""
    if value is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 1000 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("the last unit takes every value")
