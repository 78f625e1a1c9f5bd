"""How a process writes its log."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from fieldpost.core.errors import ConfigError
from fieldpost.core.secret import Scrubber, Secret
from fieldpost.run import logs


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


def test_what_is_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    logs.configure("warning", stream=stream)
    structlog.stdlib.get_logger("fieldpost.site").info("agent.started")
    assert stream.getvalue() == ""


def test_libraries_are_heard_from_warnings_on() -> None:
    stream = io.StringIO()
    logs.configure("debug", stream=stream)
    logging.getLogger("aiohttp").info("chatter")
    logging.getLogger("aiohttp").warning("trouble")
    assert "chatter" not in stream.getvalue()
    assert "trouble" in stream.getvalue()


def test_an_unknown_level_is_refused() -> None:
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
def test_a_traceback_tells_no_values_and_a_known_secret_is_taken_out_of_every_line(kind: str) -> None:
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
