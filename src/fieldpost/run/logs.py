"""How a process writes its log: events named noun.verb with their values, to stderr.

For people on a terminal, as JSON where that is asked for, as key=value lines otherwise. Bodies and secrets never get
here: whoever logs an event names each value. A log that cannot be written never stops the work.
"""

import logging
import sys
from typing import Any, TextIO

import structlog

from fieldpost.core.errors import ConfigError


def configure(level: str = "info", json: bool = False, stream: TextIO | None = None) -> None:
    """Set up logging for this process; call it once, before anything logs."""
    threshold = logging.getLevelNamesMapping().get(level.upper())
    if threshold is None:
        raise ConfigError("logs.level", f"unknown log level {level!r}", hint="debug, info, warning or error")
    target = stream or sys.stderr
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = _Handler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_ending(json, target.isatty())],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))
    logging.getLogger("fieldpost").setLevel(threshold)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _ending(json: bool, is_terminal: bool) -> list[structlog.typing.Processor]:
    if json:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    if is_terminal:
        return [structlog.dev.ConsoleRenderer(pad_event_to=24)]
    order = ["timestamp", "level", "event"]
    return [structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer(key_order=order)]


class _Handler(logging.StreamHandler[TextIO]):
    """A log whose disk is full or whose stderr is closed is given up silently: the work goes on."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def format(self, record: logging.LogRecord) -> str:
        text: Any = super().format(record)
        return text if isinstance(text, str) else str(text)
