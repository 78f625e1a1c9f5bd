"""`fieldpost listen` and the example receiver: both verify what central signs, and refuse the rest."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fieldpost.core.events.signature import make_signing_secret, signed_headers
from support.commands import FIELDPOST

SECRET = make_signing_secret(bytes(range(32)))
BODY = json.dumps({"type": "orders", "timestamp": "2026-11-16T08:00:00Z", "data": {"order": "SO-1"}}).encode()


@contextmanager
def running(*command: str, announced_on: str = "stderr") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        stream = process.stderr if announced_on == "stderr" else process.stdout
        assert stream is not None
        line = stream.readline()
        url = next(word for word in line.split() if word.startswith("http://"))
        yield url, process
    finally:
        process.terminate()
        process.communicate(timeout=20)


def post(url: str, headers: dict[str, str], body: bytes = BODY) -> int:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        return error.code


def signed(body: bytes = BODY) -> dict[str, str]:
    return signed_headers([SECRET], "msg-1", datetime.now(UTC), body)


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET.reveal() + "\n")
    return file


def test_listen_verifies_prints_and_answers(secret_file: Path) -> None:
    command = [FIELDPOST, "listen", "--port", "0", "--secret-file", str(secret_file), "--json"]
    with running(*command) as (url, process):
        assert process.stdout is not None
        assert post(url + "hook", signed()) == 204
        first = json.loads(process.stdout.readline())
        assert (first["is_verified"], first["path"], json.loads(first["body"])) == (True, "/hook", json.loads(BODY))
        assert post(url, signed(b"{}")) == 401
        second = json.loads(process.stdout.readline())
        assert (second["is_verified"], second["status"]) == (False, 401)
        assert post(url, {}) == 401


def test_listen_prints_for_people_and_answers_as_asked() -> None:
    with running(FIELDPOST, "listen", "--port", "0", "--status", "503") as (url, process):
        assert process.stdout is not None
        assert post(url, signed() | {"X-Sneaky": "a\x1b[31mb"}) == 503
        text = ""
        while '"order": "SO-1"' not in text:
            text += process.stdout.readline()
        assert "msg-1  /  unverified  answered 503" in text
        assert "\x1b" not in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--secret-file", "nowhere"), "cannot read nowhere"),
        (("--status", "99"), "--status must be between 200 and 599"),
        (("--host", "203.0.113.7"), "cannot listen on 203.0.113.7 port 8600"),
        (("--port", "70000"), "cannot listen on 127.0.0.1 port 70000"),
    ],
)
def test_bad_options_of_listen_are_named(arguments: tuple[str, ...], text: str, tmp_path: Path) -> None:
    ran = subprocess.run([FIELDPOST, "listen", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode != 0
    assert text in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.threat(19)
def test_the_example_receiver_takes_each_authentic_event_once(project: Path) -> None:
    example = str(project / "examples/webhook_receiver/receiver.py")
    with running(sys.executable, example, SECRET.reveal(), "0", announced_on="stdout") as (url, process):
        assert process.stdout is not None
        assert [post(url, signed()), post(url, signed()), post(url, signed(b"{}"))] == [204, 204, 401]
        assert post(url, signed_headers([SECRET], "msg-2", datetime(2020, 1, 1, tzinfo=UTC), BODY)) == 401
        other = signed_headers([make_signing_secret(bytes(32)), SECRET], "msg-3", datetime.now(UTC), BODY)
        assert post(url, other) == 204
        assert process.stdout.readline() == 'msg-1 orders {"order": "SO-1"}\n'
        assert process.stdout.readline() == 'msg-3 orders {"order": "SO-1"}\n'
