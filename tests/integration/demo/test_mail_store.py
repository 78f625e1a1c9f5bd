import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fieldpost.demo.mail_store import MailStore
from fieldpost.testing import ReceivedMail

MAIL = ReceivedMail(
    number=1,
    connection=7,
    sender="pump@plant.example",
    recipients=("ops@plant.example", "nächt@plant.example"),
    received_at=datetime(2026, 11, 15, 8, 12, 31, 250_000, tzinfo=UTC),
    raw="Subject: Kühlung\r\n\r\nGröße 3\r\n".encode() + b"\xff\xfe\x00\r\n",
    parameters=("BODY=8BITMIME", "SMTPUTF8"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mails.jsonl"


@contextmanager
def file_size_limited_to(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_mail_is_the_same_byte_by_byte_after_a_restart(path: Path) -> None:
    with MailStore(path) as store:
        store.add(MAIL)
    with MailStore(path) as store:
        assert list(store.mails) == [MAIL]
        assert store.unreadable_lines == 0


def test_a_mail_is_in_the_file_as_soon_as_add_returns(path: Path) -> None:
    with MailStore(path) as store:
        store.add(MAIL)
        with MailStore(path) as other:
            assert list(other.mails) == [MAIL]


def test_numbers_continue_over_restarts(path: Path) -> None:
    for _ in range(3):
        with MailStore(path) as store:
            store.add(replace(MAIL, number=1))
            store.add(replace(MAIL, number=2))
    assert [mail.number for mail in store.mails] == [1, 2, 3, 4, 5, 6]


def test_only_the_newest_stay_in_memory_and_in_the_file(path: Path) -> None:
    with MailStore(path, mails_max=10) as store:
        for _ in range(35):
            store.add(MAIL)
        assert [mail.number for mail in store.mails] == list(range(26, 36))
        assert path.read_bytes().count(b"\n") < 20
    with MailStore(path, mails_max=10) as store:
        assert [mail.number for mail in store.mails] == list(range(26, 36))
        assert path.read_bytes().count(b"\n") == 10


@pytest.mark.parametrize("torn", [b'{"number": 2, "sen', b"{}\n", b"[]\n", b"nonsense\n", b'{"number": "x"}\n', b"\n"])
def test_truncated_line_affects_no_other(path: Path, torn: bytes) -> None:
    with MailStore(path) as store:
        store.add(MAIL)
    path.write_bytes(path.read_bytes() + torn)
    with MailStore(path) as store:
        assert store.unreadable_lines == 1
        store.add(MAIL)
    with MailStore(path) as store:
        assert [mail.number for mail in store.mails] == [1, 2]
        assert store.unreadable_lines == 0


def test_mail_that_did_not_fit_on_the_disk_is_dropped_and_affects_no_other(path: Path) -> None:
    with MailStore(path) as store:
        store.add(MAIL)
        with file_size_limited_to(path.stat().st_size + 50), pytest.raises(OSError, match=r"part|large"):
            store.add(MAIL)
        assert [mail.number for mail in store.mails] == [1]
        store.add(MAIL)
    with MailStore(path) as store:
        assert ([mail.number for mail in store.mails], store.unreadable_lines) == ([1, 2], 0)


@pytest.mark.threat(30)
def test_file_is_private_also_after_rewriting_and_if_it_was_open_before(path: Path) -> None:
    path.touch(mode=0o644)
    for _ in range(2):
        with MailStore(path, mails_max=2) as store:
            for _ in range(5):
                store.add(MAIL)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
