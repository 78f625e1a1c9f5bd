"""What a script sees of a site: its folder, sending, and what is refused at once."""

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fieldpost import Site
from fieldpost.core.errors import ConfigError, Conflict, InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.core.sites.message import Message
from fieldpost.core.text import BODY_BYTES_MAX, LIST_NAME_BYTES_MAX, SUBJECT_BYTES_MAX
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.config.folder import read_folder
from fieldpost.testing import ManualClock
from support.site_folders import TOKEN, make_site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "site"


@pytest.fixture
def site(folder: Path) -> Site:
    return make_site(folder)


def buffered(folder: Path, notification_id: str) -> Message:
    buffer = Buffer(folder / "buffer.db")
    message = buffer.find(notification_id)
    buffer.close()
    assert isinstance(message, Message)
    return message


@pytest.mark.req("API-01", "RES-17")
def test_send_returns_a_local_id_after_buffering_the_notification(site: Site, folder: Path) -> None:
    notification_id = site.notify.to("operators").send("Pump 3 stopped", "No flow.")
    assert is_id(notification_id)
    assert buffered(folder, notification_id).message_id == notification_id


@pytest.mark.req("API-01")
def test_send_opens_no_connection_with_any_address_of_central(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("send touched the network")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert site.notify.to("operators").send("s", "b")


@pytest.mark.req("MSG-04", "MSG-06", "TOP-06", "TOP-07")
def test_the_buffered_payload_holds_list_name_texts_id_and_provenance_and_no_recipient(
    folder: Path, site: Site
) -> None:
    site.close()
    clock = ManualClock(datetime(2026, 11, 15, 9, 30, tzinfo=UTC))
    with Site.open(folder, clock=clock) as opened:
        notification_id = opened.notify.to("operators").send(
            "Pump 3",
            "Zu heiß\nSchau nach",
            instance="pump-3",
            script="watch.py",
            execution_id="run-9",
            parent_execution_id="run-1",
        )
    message = buffered(folder, notification_id)
    assert message.target == "central"
    assert message.created_at == datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
    assert json.loads(message.payload) == {
        "notification_id": notification_id,
        "list_name": "operators",
        "subject": "Pump 3",
        "body": "Zu heiß\nSchau nach",
        "enqueued_at": "2026-11-15T09:30:00.000000Z",
        "instance": "pump-3",
        "script": "watch.py",
        "execution_id": "run-9",
        "parent_execution_id": "run-1",
    }


@pytest.mark.req("API-02")
@pytest.mark.bad_input(1)
@pytest.mark.parametrize("name", ["ops-by-mail", "ops-by-webhook", "nobody has heard of this list", "ops ü"])
def test_lists_of_any_type_and_unknown_ones_are_accepted(site: Site, name: str) -> None:
    notification_id = site.notify.to(name).send("s", "b")
    assert site.notify.status(notification_id).status == "forwarding"


def test_second_process_sees_messages_of_the_first(site: Site, folder: Path) -> None:
    notification_id = site.notify.to("ops").send("s", "b")
    program = "import sys; from fieldpost import Site; print(Site.open(sys.argv[1]).notify.status(sys.argv[2]).status)"
    command = [sys.executable, "-c", program, str(folder), notification_id]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "forwarding\n"


def test_threads_share_a_site(site: Site) -> None:
    ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: ids.extend(site.notify.to("ops").send("s", "b") for _ in range(20)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 160


@pytest.mark.bad_input(1)
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "text.empty"),
        ("   ", "text.empty"),
        ("x" * 10_240, "text.too_long"),
        ("é" * (LIST_NAME_BYTES_MAX // 2 + 1), "text.too_long"),
        ("ops\x07", "text.control"),
        ("ops\nbcc", "text.control"),
    ],
)
def test_a_bad_list_name_is_refused_at_once(site: Site, name: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        site.notify.to(name)
    assert (caught.value.field, caught.value.code) == ("list_name", code)


@pytest.mark.bad_input(2)
@pytest.mark.req("DEC-36")
@pytest.mark.parametrize("breaking", ["\r", "\n", "\r\n", "\v", "\f", "\x85", "\u2028", "\u2029", "\x1c"])
def test_a_line_break_in_a_subject_is_refused_at_the_site(site: Site, breaking: str) -> None:
    refused(site, f"Pump{breaking}Bcc: all@x", "b", "subject", "text.line_break")


@pytest.mark.bad_input(3)
@pytest.mark.req("DEC-36")
def test_a_nul_is_refused_at_the_site(site: Site) -> None:
    refused(site, "a\0b", "b", "subject", "text.nul")
    refused(site, "s", "a\0b", "body", "text.nul")


@pytest.mark.bad_input(4)
@pytest.mark.req("DEC-36")
def test_a_lone_surrogate_is_refused_at_the_site(site: Site) -> None:
    refused(site, "a\ud800", "b", "subject", "text.surrogate")
    refused(site, "s", "\udfff", "body", "text.surrogate")


@pytest.mark.bad_input(5)
@pytest.mark.req("DEC-36")
def test_limits_are_in_bytes_of_utf8_and_exact(site: Site) -> None:
    site.notify.to("ops").send("s" * SUBJECT_BYTES_MAX, "b" * BODY_BYTES_MAX)
    site.notify.to("ops").send("é" * (SUBJECT_BYTES_MAX // 2), "é" * (BODY_BYTES_MAX // 2))
    refused(site, "s" * (SUBJECT_BYTES_MAX + 1), "b", "subject", "text.too_long")
    refused(site, "s", "b" * (BODY_BYTES_MAX + 1), "body", "text.too_long")
    refused(site, "s", "é" * (BODY_BYTES_MAX // 2) + "x", "body", "text.too_long")
    refused(site, "s", "b" * 10_000_000, "body", "text.too_long")
    assert (SUBJECT_BYTES_MAX, BODY_BYTES_MAX) == (998, 256 * 1024)


class Text(str):
    __slots__ = ()


@pytest.mark.bad_input(6)
@pytest.mark.parametrize("value", [None, b"bytes", 5, 1.5, ["x"], {"a": 1}, Text("subclass")])
def test_anything_but_a_plain_str_is_refused_by_name(site: Site, value: object) -> None:
    refused(site, value, "b", "subject", "text.type")
    refused(site, "s", value, "body", "text.type")
    with pytest.raises(InvalidInput) as caught:
        site.notify.to(value)  # type: ignore[arg-type]
    assert caught.value.field == "list_name"


@pytest.mark.parametrize("field", ["instance", "script", "execution_id", "parent_execution_id"])
def test_provenance_is_checked_by_name(site: Site, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        site.notify.to("ops").send("s", "b", **{field: "two\nlines"})
    assert caught.value.field == field


def refused(site: Site, subject: object, body: object, field: str, code: str) -> None:
    """It is refused by field and rule, and nothing was written."""
    before = site._buffer.depth()
    with pytest.raises(InvalidInput) as caught:
        site.notify.to("ops").send(subject, body)  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.code) == (field, code)
    assert site._buffer.depth() == before


def test_a_new_folder_holds_settings_token_and_buffer(site: Site, folder: Path) -> None:
    assert (folder / "buffer.db").is_file()
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert site.name == "plant-7"
    assert read_folder(folder).endpoint().token == TOKEN


def test_missing_buffer_is_created_when_a_site_is_opened(site: Site, folder: Path) -> None:
    site.close()
    for file in folder.glob("buffer.db*"):
        file.unlink()
    with Site.open(folder) as opened:
        assert opened.notify.to("ops").send("s", "b")


def test_folder_is_created_once(site: Site, folder: Path) -> None:
    with pytest.raises(Conflict) as caught:
        make_site(folder)
    assert caught.value.code == "site.exists"


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "ümlaut", "a = 1"])
def test_any_accepted_name_is_read_back_unchanged(folder: Path, name: str) -> None:
    Site.create(folder, name, "http://127.0.0.1:9", TOKEN).close()
    assert read_folder(folder).name == name


@pytest.mark.parametrize("name", [".", "..", "", " ", "two\nlines", "x" * 257])
def test_name_that_central_rejects_creates_no_folder(folder: Path, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Site.create(folder, name, "http://127.0.0.1:9", TOKEN)
    assert (caught.value.field, folder.exists()) == ("name", False)


@pytest.mark.parametrize("token", ["", "hunter2", TOKEN.replace("site", "api"), "fp_site_x"])
def test_invalid_site_token_creates_no_folder(folder: Path, token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Site.create(folder, "plant-7", "http://127.0.0.1:9", token)
    assert caught.value.code == "site.token"
    assert not folder.exists()
    assert "hunter2" not in str(caught.value)


def test_missing_folder_is_an_error_with_a_remedy(folder: Path) -> None:
    with pytest.raises(ConfigError, match="fieldpost site init"):
        Site.open(folder)
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"does not contain site\.toml"):
        Site.open(folder)


@pytest.mark.bad_input(6)
@pytest.mark.parametrize("value", [None, 5, b"site", "a\x00b", ["site"]])
def test_invalid_folder_name_is_rejected_by_name(value: object) -> None:
    for act in (lambda: Site.open(value), lambda: Site.create(value, "p", "https://c", TOKEN)):  # type: ignore[arg-type]
        with pytest.raises(InvalidInput) as caught:
            act()
        assert caught.value.field == "folder"


def test_folder_that_cannot_be_created_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "site"):
        with pytest.raises(ConfigError, match="cannot be created") as caught:
            Site.create(folder, "p", "https://c", TOKEN)
        assert caught.value.code == "site.folder"


GOOD = '[site]\nname = "plant"\n[central]\nurl = "https://c"\n'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (GOOD + "[forwarding]\n", "forwarding is unknown"),
        (GOOD + 'uri = "x"\n', "central.uri is unknown"),
        (GOOD + "[forward]\ninterval = 5\n", "forward.interval is unknown"),
        (GOOD + "[forward]\ninterval_s = 0\n", "forward.interval_s must be a number"),
        (GOOD + '[forward]\ninterval_s = "5m"\n', "forward.interval_s must be a number"),
        (GOOD + "ca_file = 5\n", "central.ca_file"),
        ("site = 5\n", "site must be a section"),
        ('[site]\nname = "plant"\n', r"\[central\] url is missing"),
        ('[central]\nurl = "https://c"\n', r"\[site\] name is missing"),
        ('[site]\nname = ""\n[central]\nurl = "https://c"\n', "site.name must not be empty"),
        ('[site]\nname = "p"\n[central]\nurl = "c"\n', "central's url"),
        ("[site\n", "cannot be read"),
        ("\xff", "cannot be read"),
    ],
)
def test_a_mistake_in_the_settings_is_named_with_its_file(folder: Path, text: str, named: str) -> None:
    folder.mkdir()
    (folder / "site.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=named) as caught:
        Site.open(folder)
    assert "site.toml" in str(caught.value)


@pytest.mark.req("SF-11", "RES-03")
def test_the_forward_interval_is_read_from_the_site_s_settings(site: Site, folder: Path) -> None:
    assert read_folder(folder).forward.interval_s == 10
    with (folder / "site.toml").open("a") as settings:
        settings.write("[forward]\ninterval_s = 2.5\n")
    assert read_folder(folder).forward.interval_s == 2.5


@pytest.mark.skipif(os.name != "posix", reason="modes of files are a matter of POSIX")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_token_that_others_can_read_is_refused(site: Site, folder: Path, mode: int) -> None:
    (folder / "token").chmod(mode)
    with pytest.raises(ConfigError) as caught:
        read_folder(folder).endpoint()
    assert caught.value.code == "site.token_open"
    assert "chmod 600" in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="modes of files are a matter of POSIX")
def test_sending_needs_no_token(site: Site, folder: Path) -> None:
    (folder / "token").unlink()
    assert site.notify.to("ops").send("s", "b")


def test_closed_site_raises_an_error(site: Site) -> None:
    with site:
        pass
    with pytest.raises(Conflict) as caught:
        site.notify.to("ops").send("s", "b")
    assert caught.value.code == "buffer.closed"


@pytest.mark.req("DEC-04")
def test_a_clock_that_was_wrong_when_it_was_sent_delays_nothing(site: Site, folder: Path) -> None:
    site.close()
    clock = ManualClock(datetime(2126, 1, 1, tzinfo=UTC))
    with Site.open(folder, clock=clock) as opened:
        notification_id = opened.notify.to("ops").send("s", "b")
    buffer = Buffer(folder / "buffer.db")
    taken = buffer.take(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(), items_max=1, bytes_max=1)
    buffer.close()
    assert [message.message_id for message in taken] == [notification_id]


@pytest.mark.req("CHN-01")
def test_alarm_is_sent_with_its_fields_and_part_of_the_content_of_a_key(site: Site, folder: Path) -> None:
    to = site.notify.to("operators")
    alarm = {"severity": "critical", "incident": "pump 3", "is_cleared": True}
    raised = to.send("Pump 3", "b", key="k", severity="critical", incident="pump 3", is_cleared=True)
    assert alarm.items() <= json.loads(buffered(folder, raised).payload).items()
    assert to.send("Pump 3", "b", key="k", severity="critical", incident="pump 3", is_cleared=True) == raised
    with pytest.raises(Conflict):
        to.send("Pump 3", "b", key="k", severity="critical", incident="pump 3")
    assert alarm.keys().isdisjoint(json.loads(buffered(folder, to.send("s", "b")).payload))


@pytest.mark.req("CHN-01")
@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("severity", "high", "severity.unknown"),
        ("incident", "x" * 256, "incident.length"),
        ("incident", "a\x00b", "text.nul"),
        ("is_cleared", "yes", "text.type"),
    ],
)
def test_an_invalid_alarm_is_refused_at_once(site: Site, field: str, value: str, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        site.notify.to("operators").send("s", "b", **{field: value})  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.field) == (code, field)
