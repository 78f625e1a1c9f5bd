"""Logging of a process: events named noun.verb with their values, to stderr.

Coloured on a terminal, JSON on request, key=value lines otherwise. Bodies and secrets are never logged: an event names
each of its values, and a `Secret` prints stars. A library's exception may still quote a secret, so every line passes a
final filter (`scrub_with`). Lines that strangers cause are limited, and nothing reaches a terminal that it would act on
(`log_limits`). Tracebacks show no values of variables. A log that cannot be written never stops the work.
"""

import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict

from fieldpost.clock import SystemClock
from fieldpost.core.errors import ConfigError
from fieldpost.run.log_limits import LineLimiter, escape_values, escaped_traceback

_processors: list[structlog.typing.Processor] = []


def configure(level: str = "info", json: bool = False, stream: TextIO | None = None) -> None:
    """Set up logging for this process; call it once, before anything logs.

    Our own events go straight to the stream, because there is one for every attempt. Records of `logging`, by
    libraries, are written in the same form, from warnings up.
    """
    threshold = logging.getLevelNamesMapping().get(level.upper())
    if threshold is None:
        raise ConfigError("logs.level", f"unknown log level {level!r}", hint="debug, info, warning or error")
    target = stream or sys.stderr
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    ending = _ending(json, target.isatty())
    handler = _Handler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))
    # Loggers that were used before keep this list.
    _processors[:] = [LineLimiter(), _stamp, *ending]
    structlog.configure(
        processors=_processors,
        logger_factory=lambda *_: _Log(target),
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        cache_logger_on_first_use=True,
    )


def scrub_with(scrub: Callable[[str], str]) -> None:
    """Apply this function to every line from now on."""
    _guard.scrub = scrub


class _Guard:
    """Removes secrets from a line; one per process."""

    scrub: Callable[[str], str] = staticmethod(str)


_guard = _Guard()


class _Log(structlog.WriteLogger):
    """Drops lines silently if the disk is full or stderr is closed: the work continues."""

    def msg(self, message: str) -> None:
        try:  # noqa: SIM105  # a context manager costs as much as the write
            super().msg(_guard.scrub(message))
        except (OSError, ValueError):
            pass

    debug = info = warning = error = critical = exception = msg


def _ending(json: bool, is_terminal: bool) -> list[structlog.typing.Processor]:
    if json:
        return [_with_traceback, structlog.processors.JSONRenderer(default=str)]
    if is_terminal:
        # The default also shows the variables of each frame, including passwords.
        renderer = structlog.dev.ConsoleRenderer(pad_event_to=24, exception_formatter=escaped_traceback)
        return [escape_values, renderer]
    return [_with_traceback, _key_values]


def _stamp(logger: Any, method: str, event: EventDict) -> EventDict:
    """Level, time and, if requested, the stack: structlog's processors in one call, as there is a line per attempt."""
    if "stack_info" in event:
        event = _render_stack(logger, method, event)
    event["level"] = _LEVELS.get(method, method)
    event["timestamp"] = _now().isoformat()[:-6] + "Z"
    return event


def _with_traceback(logger: Any, method: str, event: EventDict) -> EventDict:
    return structlog.processors.format_exc_info(logger, method, event) if "exc_info" in event else event


_render_stack = structlog.processors.StackInfoRenderer()
_now = SystemClock().now
_LEVELS = {"warn": "warning", "exception": "error"}


def _key_values(_logger: object, _method: str, values: MutableMapping[str, Any]) -> str:
    """Render key=value pairs; cheaper than structlog's own renderer, since there is a line for every attempt."""
    first = f"timestamp={values.pop('timestamp')!r} level={values.pop('level')!r} event={values.pop('event')!r}"
    return " ".join([first, *[f"{name}={value!r}" for name, value in values.items()]])


class _Handler(logging.StreamHandler[TextIO]):
    """The same for records of libraries."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def format(self, record: logging.LogRecord) -> str:
        text: Any = super().format(record)
        return _guard.scrub(text if isinstance(text, str) else str(text))
