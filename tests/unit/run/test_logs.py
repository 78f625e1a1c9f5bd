"""How a process writes its log."""

import contextlib
import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
import structlog

from fieldpost.core.errors import ConfigError
from fieldpost.core.secret import Scrubber, Secret
from fieldpost.run import logs
from fieldpost.run.log_limits import ADDRESSES_MAX, LINES_MAX, WINDOW_S, LineLimiter


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], level = before
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_lines_hold_the_event_its_values_its_level_and_the_time_in_utc() -> None:
    stream = io.StringIO()
    logs.configure("info", json=True, stream=stream)
    structlog.stdlib.get_logger("fieldpost.site").info("message.rejected", message_id="id-1")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["message_id"], line["level"]) == ("message.rejected", "id-1", "info")
    assert line["timestamp"].endswith("Z")


def test_plain_lines_are_key_and_value() -> None:
    stream = io.StringIO()
    logs.configure("info", stream=stream)
    structlog.stdlib.get_logger("fieldpost.site").warning("forwarding.failed", code="link.denied")
    assert "level='warning' event='forwarding.failed' code='link.denied'" in stream.getvalue()


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    logs.configure("warning", stream=stream)
    structlog.stdlib.get_logger("fieldpost.site").info("agent.started")
    assert stream.getvalue() == ""


def test_libraries_log_warnings_and_above() -> None:
    stream = io.StringIO()
    logs.configure("debug", stream=stream)
    logging.getLogger("aiohttp").info("chatter")
    logging.getLogger("aiohttp").warning("trouble")
    assert "chatter" not in stream.getvalue()
    assert "trouble" in stream.getvalue()


def test_unknown_level_is_rejected() -> None:
    with pytest.raises(ConfigError, match="loud"):
        logs.configure("loud")


def test_a_log_that_cannot_be_written_does_not_stop_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    logs.configure("info", stream=stream)
    stream.close()
    structlog.stdlib.get_logger("fieldpost.site").info("agent.started")
    assert capsys.readouterr().err == ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.threat(23)
@pytest.mark.parametrize("kind", ["terminal", "json", "plain"])
def test_traceback_has_no_values_and_known_secrets_are_removed_from_every_line(kind: str) -> None:
    stream = _Terminal() if kind == "terminal" else io.StringIO()
    logs.configure("info", json=kind == "json", stream=stream)
    logs.scrub_with(Scrubber([Secret("kanarie-known")]))
    try:
        password = "kanarie-local"
        try:
            raise ValueError("cannot log in with 'kanarie-known'", len(password))
        except ValueError:
            structlog.stdlib.get_logger("fieldpost").exception("attempt.crashed", reply="535 kanarie-known")
            logging.getLogger("library").exception("also kanarie-known")
    finally:
        logs.scrub_with(str)
    shown = stream.getvalue()
    assert shown.count("***") >= 4
    assert "Traceback" in shown
    assert "kanarie-known" not in shown
    assert "kanarie-local" not in shown.replace('password = "kanarie-local"', "")


@pytest.mark.threat(37)
def test_log_lines_caused_by_strangers_are_short_and_limited() -> None:
    """Three hundred requests for long paths wrote nine megabytes."""
    stream = io.StringIO()
    logs.configure("info", stream=stream)
    log = structlog.get_logger()
    for _ in range(300):
        log.warning("call.denied", path="/" + "\x1b" * 16_000, code="auth.required", address="192.0.2.7")
    lines = stream.getvalue().splitlines()
    assert len(lines) == LINES_MAX
    assert len(stream.getvalue()) < 20_000
    log.warning("call.denied", path="/", code="auth.required", address="192.0.2.8")
    log.warning("call.denied", path="/", code="access.role", address="192.0.2.7")
    log.warning("attempt.finished", notification_id="id-1")
    assert len(stream.getvalue().splitlines()) == LINES_MAX + 3, "others are not affected"


@pytest.mark.threat(37)
def test_dropped_lines_are_counted_and_many_addresses_share_a_limit() -> None:
    now = [0.0]
    limit = LineLimiter(lambda: now[0])

    def kept(count: int, **values: str) -> list[dict[str, object]]:
        found = []
        for _ in range(count):
            with contextlib.suppress(structlog.DropEvent):
                found.append(dict(limit(None, "info", {"event": "call.denied", "code": "x", **values})))
        return found

    assert len(kept(25, address="192.0.2.7")) == LINES_MAX
    now[0] += WINDOW_S
    [line] = kept(1, address="192.0.2.7")
    assert line["dropped"] == 25 - LINES_MAX
    assert sum(len(kept(1, address=f"10.0.{n // 250}.{n % 250}")) for n in range(5_000)) <= ADDRESSES_MAX + LINES_MAX
    now[0] += WINDOW_S
    assert len(kept(1, address="192.0.2.9")) == 1
    assert len(limit._windows) < ADDRESSES_MAX, "what is over is forgotten"


@pytest.mark.threat(23, 37)
def test_control_sequences_do_not_reach_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    logs.configure("info", stream=stream)
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc\rdone\x08"
    structlog.get_logger().warning("call.denied", path=f"/{evil}", error=evil, listed=[evil])
    structlog.get_logger().warning(evil)
    logging.getLogger("library").warning("heard %s", evil)
    try:
        raise ValueError(evil)
    except ValueError:
        structlog.get_logger().exception("request.failed")
    written = re.sub("\x1b\\[[0-9;]*m", "", stream.getvalue())  # the colours of the log itself
    assert "owned" in written
    assert "\\x1b]0;owned\\x07" in written
    assert not re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", written)
    assert "\x1b[2J" not in stream.getvalue()
