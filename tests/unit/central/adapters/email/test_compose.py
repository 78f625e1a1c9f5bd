"""A notification as a mail, read back by the standard library's parser."""

import re
from datetime import UTC, datetime, timedelta, timezone
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.central.adapters.email.compose import compose, message_id, stuffed
from support.mailing import DATED, ID, SENDER

DOMAIN = "alerts.example.org"

BODIES = {
    "ascii": "Pump 3 is hot.\nIt has 93 degrees.\n",
    "umlauts": "Pumpe 3 läuft heiß: 93 °C\n",
    "cjk": "三号泵过热。\n温度九十三度。\n",
    "emoji": "🔥 pump 3 👩🏽‍🔧 called\n",
    "leading dots": ".\n..\n.hidden\nmid\n.\n",
    "long line": "x" * 2000 + "\n",
    "long line of words": "word " * 400 + "\n",
    "line of 998": "x" * 998 + "\n",
    "line of 999": "x" * 999 + "\n",
    "many lines": "a line of text\n" * 5000,
    "empty": "",
    "blank lines": "\n\n\na\n\n",
    "no end of line": "Pump 3",
    "spaces": "  indented \t\n trailing   \n",
    "from": "From the pump\n>From\nFrom: nobody\n",
    "looks encoded": "=20=3D =?utf-8?b?eA==?= &amp;\n",
    "controls": "bell \x07 escape \x1b[31m form \x0c\n",
}


def composed(subject: str = "Pump 3 is hot", body: str = "hot\n", dated: datetime = DATED) -> bytes:
    return compose(
        notification_id=ID, message_id_domain=DOMAIN, from_address=SENDER, subject=subject, body=body, dated=dated
    )


def parsed(raw: bytes) -> EmailMessage:
    return cast(EmailMessage, message_from_bytes(raw, policy=policy.default))


def text_of(raw: bytes) -> str:
    payload = cast(bytes, parsed(raw).get_payload(decode=True))
    return payload.decode("utf-8")


def in_mail(body: str) -> str:
    """The body as text in a mail: CRLF ends each line, the last one too."""
    text = re.sub(r"\r\n|\n", "\r\n", body)
    return text if text.endswith("\r\n") else text + "\r\n"


@pytest.mark.req("ADP-06")
def test_complete_source_of_a_plain_mail() -> None:
    assert composed() == (
        b"From: alerts@plant.example\r\n"
        b"To: undisclosed-recipients:;\r\n"
        b"Subject: Pump 3 is hot\r\n"
        b"Date: Sun, 15 Nov 2026 08:00:00 +0000\r\n"
        b"Message-ID: <0198c8a0-0000-7000-8000-000000000001@alerts.example.org>\r\n"
        b"Auto-Submitted: auto-generated\r\n"
        b"X-Fieldpost-Id: 0198c8a0-0000-7000-8000-000000000001\r\n"
        b"MIME-Version: 1.0\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\n"
        b"Content-Transfer-Encoding: 7bit\r\n"
        b"\r\n"
        b"hot\r\n"
    )


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_body_survives_encoding(body: str) -> None:
    assert text_of(composed(body=body)) == in_mail(body)


@pytest.mark.parametrize("name", ["ascii", "leading dots", "line of 998", "many lines", "spaces", "looks encoded"])
def test_plain_ascii_travels_readable(name: str) -> None:
    assert parsed(composed(body=BODIES[name]))["Content-Transfer-Encoding"] == "7bit"


@pytest.mark.parametrize("name", ["umlauts", "cjk", "emoji", "long line", "line of 999"])
def test_body_that_a_server_could_mangle_is_sent_as_base64(name: str) -> None:
    assert parsed(composed(body=BODIES[name]))["Content-Transfer-Encoding"] == "base64"


SUBJECTS = {
    "ascii": "Pump 3 is hot",
    "umlauts": "Pumpe 3 läuft heiß",
    "cjk": "三号泵过热" * 20,
    "emoji": "🔥" * 60,
    "mixed": "Pump 3: 93 °C at " + "Straße " * 40,
    "long ascii": "the pump is hot and " * 20 + "wet",
    "double spaces": "the  pump   is " * 20 + "hot",
    "one long word": "x" * 998,
    "looks encoded": "=?utf-8?b?eA==?=",
    "has an encoded part": "see =?utf-8?q?x?= here",
    "colon": "Bcc: everybody@plant.example",
    "controls": "bell \x07 tab \t escape \x1b",
    "outer spaces": "  hot  ",
}


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS.keys())
def test_subject_survives_encoding(subject: str) -> None:
    raw = composed(subject=subject)
    assert parsed(raw)["Subject"] == subject
    assert max(map(len, raw.partition(b"\r\n\r\n")[0].split(b"\r\n"))) <= 78


def test_message_id_and_date_are_the_same_at_every_attempt_and_in_every_zone() -> None:
    elsewhere = DATED.astimezone(timezone(timedelta(hours=14)))
    assert composed(dated=elsewhere) == composed()
    assert message_id(ID, DOMAIN) == parsed(composed(subject="other", body="other"))["Message-ID"]


def test_different_notifications_have_different_message_ids() -> None:
    assert message_id(ID, DOMAIN) != message_id(ID[:-1] + "2", DOMAIN)


@pytest.mark.threat(4)
@given(
    subject=st.text() | st.from_regex(r"(\r|\n|\r\n|Bcc: x@y.z|=\?| ){1,8}", fullmatch=True),
    body=st.text(st.sampled_from("a.\r\n\t\0\x85\u2028ä=")) | st.text(),
)
def test_subject_and_body_cannot_inject_headers_or_end_the_message(subject: str, body: str) -> None:
    raw = composed(subject=subject, body=body)
    assert not re.search(rb"\r(?!\n)|(?<!\r)\n", raw)
    assert max(map(len, raw.split(b"\r\n"))) <= 998
    head = raw.partition(b"\r\n\r\n")[0]
    names = [line.partition(b":")[0].decode() for line in head.split(b"\r\n") if line[:1] not in b" \t"]
    assert names == [
        *("From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "X-Fieldpost-Id"),
        *("MIME-Version", "Content-Type", "Content-Transfer-Encoding"),
    ]
    assert text_of(raw) == in_mail(body)
    # On the wire a dot stands alone on its line only at the very end.
    assert stuffed(raw).find(b"\r\n.\r\n") == len(stuffed(raw)) - 5


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (b"a\r\n", b"a\r\n.\r\n"),
        (b".\r\n", b"..\r\n.\r\n"),
        (b"a\r\n.\r\n..\r\n.b\r\n", b"a\r\n..\r\n...\r\n..b\r\n.\r\n"),
        (b"\r\n.\r\n.\r\n", b"\r\n..\r\n..\r\n.\r\n"),
    ],
)
def test_lines_that_begin_with_a_dot_are_stuffed(message: bytes, wire: bytes) -> None:
    assert stuffed(message) == wire


def test_time_before_1970_or_after_9998_is_accepted() -> None:
    for dated in (datetime(1900, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):
        assert parsed(composed(dated=dated))["Date"].datetime == dated
