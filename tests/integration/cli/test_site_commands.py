"""The command line on a site's machine: what it prints, and its exit codes."""

import asyncio
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fieldpost.core.ids import is_id
from fieldpost.core.sites.forwarding import Clear
from fieldpost.core.sites.message import Message
from fieldpost.core.text import BODY_BYTES_MAX
from fieldpost.core.times import to_text
from fieldpost.link.messages import StatusAnswer
from fieldpost.site.buffer.buffer import Buffer
from support.commands_of_site import fieldpost_here as fieldpost
from support.link_central import link_central
from support.site_folders import TOKEN, make_site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_site(tmp_path / "site").close()
    return tmp_path / "site"


def test_a_site_is_set_up_with_a_token_from_the_environment_a_file_or_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "given"
    file.write_text(TOKEN + "\n")
    ways: list[tuple[list[object], bytes, str | None]] = [
        ([], b"", TOKEN),
        (["--token-file", file], b"", None),
        (["--token-file", "-"], TOKEN.encode() + b"\n", None),
    ]
    for number, (arguments, given, token) in enumerate(ways):
        folder = tmp_path / f"site-{number}"
        result = fieldpost(
            "site", "init", folder, "--name", "p", "--central", "https://c", *arguments, given=given, token=token
        )
        assert result.returncode == 0, result.stderr
        assert (folder / "token").read_text().strip() == TOKEN
        assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
        assert TOKEN.encode() not in result.stdout + result.stderr


def test_a_site_without_a_token_is_not_set_up(tmp_path: Path) -> None:
    result = fieldpost("site", "init", tmp_path / "site", "--name", "p", "--central", "https://c")
    assert result.returncode == 8
    assert b"FIELDPOST_SITE_TOKEN" in result.stderr
    assert not (tmp_path / "site").exists()


def test_send_prints_the_id_and_status_prints_its_state(folder: Path) -> None:
    sent = fieldpost("send", "--folder", folder, "--to", "ops", "--subject", "Pump 3", "No flow")
    notification_id = sent.stdout.decode().strip()
    assert is_id(notification_id)
    status = fieldpost("status", notification_id, "--folder", folder)
    assert (status.returncode, status.stdout) == (0, b"forwarding\n")
    record = json.loads(fieldpost("status", notification_id, "--folder", folder, "--json").stdout)
    assert record["status"] == "forwarding"
    assert record["notification_id"] == notification_id
    assert set(record) == {
        "notification_id", "status", "retry_count", "last_error", "enqueued_at", "delivered_at", "next_attempt_at",
    }  # fmt: skip


def test_body_can_be_read_from_standard_input(folder: Path) -> None:
    sent = fieldpost("send", "-f", folder, "--to", "ops", "-s", "s", "-", given="zwei\nZeilen ü".encode())
    buffer = Buffer(folder / "buffer.db")
    message = buffer.find(sent.stdout.decode().strip())
    buffer.close()
    assert isinstance(message, Message)
    assert json.loads(message.payload)["body"] == "zwei\nZeilen ü"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (b"x" * (BODY_BYTES_MAX + 1), b"text.too_long"),
        ("é".encode() * BODY_BYTES_MAX, b"text.too_long"),
        (b"x" + "é".encode() * BODY_BYTES_MAX, b"text.too_long"),
        (b"\xff\xfe", b"text.not_utf8"),
        (b"a\0b", b"text.nul"),
    ],
)
def test_a_bad_body_on_standard_input_is_one_line_and_exit_code_3(folder: Path, given: bytes, code: bytes) -> None:
    result = fieldpost("send", "-f", folder, "--to", "ops", "-s", "s", "-", given=given)
    assert result.returncode == 3
    assert code in result.stderr
    assert result.stderr.count(b"\n") == 1
    assert result.stdout == b""


async def test_status_of_a_forwarded_notification_is_that_of_central(tmp_path: Path) -> None:
    async with link_central() as central:
        site = make_site(tmp_path / "site", central.url)
        notification_id = site.notify.to("ops").send("s", "b")
        record = site.notify.status(notification_id)
        assert record.enqueued_at is not None
        central.statuses[notification_id] = StatusAnswer(
            notification_id, "parked", 3, "550 no such user", to_text(record.enqueued_at)
        )
        site._buffer.settle([(notification_id, Clear())], record.enqueued_at)
        site.close()
        result = await asyncio.to_thread(fieldpost, "status", notification_id, "-f", tmp_path / "site")
    assert result.stdout == b"parked, after 3 failed attempts: 550 no such user\n"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["status", "x"], 3, b"notification.bad_id"),
        (["status", "01a1de57-9e44-7863-858d-f15d85e1a8b2"], 7, b"link.unreachable"),
        (["send", "--to", "", "--subject", "s"], 3, b"list_name must not be empty"),
        (["send", "--to", "ops", "--subject", "two\nlines"], 3, b"text.line_break"),
    ],
)
def test_an_error_is_one_line_with_its_code_and_never_a_traceback(
    folder: Path, arguments: list[str], exit_code: int, said: bytes
) -> None:
    result = fieldpost(*arguments, "--folder", folder)
    assert result.returncode == exit_code
    assert said in result.stderr
    assert result.stderr.count(b"\n") == 1
    assert result.stderr.startswith(b"fieldpost: ")


def test_folder_without_a_site_is_exit_code_8(tmp_path: Path) -> None:
    result = fieldpost("send", "--folder", tmp_path, "--to", "ops", "--subject", "s")
    assert result.returncode == 8
    assert b"fieldpost site init" in result.stderr


def test_wrong_usage_is_exit_code_2(folder: Path) -> None:
    assert fieldpost("send", "--folder", folder).returncode == 2
    assert fieldpost("nonsense").returncode == 2


def test_help_loads_none_of_the_libraries_that_only_running_needs() -> None:
    program = """
import sys
from fieldpost.cli import commands, main
heavy = ["apsw", "aiohttp", "sqlalchemy", "fastapi", "structlog", "msgspec", "asyncpg", "alembic"]
print([name for name in heavy if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
