from datetime import UTC, datetime

import pytest

from fieldpost.testing import ReceivedMail


def mail(raw: str | bytes, is_whole: bool = True) -> ReceivedMail:
    return ReceivedMail(
        number=1,
        connection=1,
        sender="pump@plant.example",
        recipients=("ops@plant.example",),
        received_at=datetime(2026, 1, 1, tzinfo=UTC),
        raw=raw if isinstance(raw, bytes) else raw.replace("\n", "\r\n").encode(),
        is_whole=is_whole,
    )


def test_an_encoded_subject_is_decoded_and_unfolded() -> None:
    read = mail("Subject: =?utf-8?q?K=C3=BChlung?= 3\n =?utf-8?b?w7xiZXJoaXR6dA==?=\n\nx\n")
    assert read.subject == "Kühlung 3 überhitzt"


def test_a_subject_in_plain_utf8_is_read_as_such() -> None:
    assert mail("Subject: Kühlung 🔥\n\nx\n").subject == "Kühlung 🔥"


def test_a_mail_without_subject_or_message_id_has_none() -> None:
    read = mail("\nbody\n")
    assert (read.subject, read.message_id, read.header("X-Fieldpost-Id"), read.headers) == ("", None, None, ())


def test_headers_are_found_whatever_their_case() -> None:
    read = mail("X-Fieldpost-Id: 42\nX-FIELDPOST-ID: 43\n\nx\n")
    assert read.header("x-fieldpost-id") == "42"
    assert read.headers == (("X-Fieldpost-Id", "42"), ("X-FIELDPOST-ID", "43"))


@pytest.mark.parametrize(
    "raw",
    [
        "Message-ID: <1@plant>\n\n",
        "Subject: a\nmessage-id:<1@plant>\n\n",
        "Subject: a\nMessage-Id:\n <1@plant>\nTo: b\n\n",
    ],
)
def test_the_message_id_is_found_folded_or_not(raw: str) -> None:
    assert mail(raw).message_id == "<1@plant>"


def test_message_id_in_the_body_is_ignored() -> None:
    assert mail("Subject: a\n\nMessage-ID: <other@plant>\n").message_id is None


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit", "Größe 3\n".encode()),
        ("Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64", b"R3LDtsOfZSAzCg==\r\n"),
        (
            "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable",
            b"Gr=C3=B6=C3=9Fe 3\n",
        ),
        (
            "Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: 8bit",
            "Größe 3\n".encode("latin-1"),
        ),
        ("Content-Type: text/plain; charset=unheard-of\nContent-Transfer-Encoding: 8bit", "Größe 3\n".encode()),
    ],
)
def test_the_body_is_decoded(head: str, body: bytes) -> None:
    assert mail(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body).body == "Größe 3\n"


def test_the_plain_text_of_a_mail_in_two_forms_is_its_body() -> None:
    raw = (
        'Content-Type: multipart/alternative; boundary="b"\n\n--b\nContent-Type: text/html\n\n<p>no</p>\n'
        "--b\nContent-Type: text/plain\n\nyes\n--b--\n"
    )
    assert mail(raw).body == "yes"


def test_reading_a_body_that_was_not_stored_is_an_error() -> None:
    with pytest.raises(LookupError, match="keep_raw"):
        _ = mail("Subject: a\n\n", is_whole=False).body
