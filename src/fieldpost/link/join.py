"""Enrolment: a site shows central a code that a person was given, and the digest of a token that it has made itself.

The code is good for one site and one exchange; the token never travels but to prove itself. Should the answer be lost,
the site comes again with the same token, which central takes for the same exchange.
"""

from http import HTTPStatus
from pathlib import Path

import msgspec

from fieldpost.core.errors import Conflict, Denied, InvalidInput, Unavailable
from fieldpost.link.credentials import IssuedToken, prefix_of
from fieldpost.link.endpoint import Endpoint, check_central_url
from fieldpost.link.http.client import open_connection, read_bounded, send_request, unreachable_as

JOIN_PATH = "/link/v1/join"
TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 64 * 1024


class Joined(msgspec.Struct, frozen=True):
    """What central answers: which site this is now."""

    name: str


class _Problem(msgspec.Struct, frozen=True):
    code: str = ""
    detail: str = ""
    hint: str | None = None


def parse_invitation(text: str) -> tuple[str, str]:
    """`fp_join_…@https://central…` as code and address; InvalidInput or ConfigError saying what is wrong."""
    code, at, url = text.strip().partition("@")
    if not at or prefix_of(code, "join") is None:
        raise InvalidInput(
            "join.invitation",
            "this is no invitation",
            hint="it reads fp_join_…@https://central… and is printed by: fieldpost sites add NAME",
            field="invitation",
        )
    return code, check_central_url(url)


def join(url: str, ca_file: Path | None, code: str, token: IssuedToken, site: str | None = None) -> str:
    """The name of the site that the code is for, whose token this is from now on; `site` is what it must be, if it is
    known. Raises Denied for a code that cannot be used, Conflict for one of another site, Unavailable without answer.
    """
    asked = {"prefix": token.prefix, "digest": token.digest.hex(), "site": site}
    status, content = _post(Endpoint(url, code, ca_file), msgspec.json.encode(asked))
    if status == HTTPStatus.OK:
        try:
            return msgspec.json.decode(content, type=Joined).name
        except msgspec.DecodeError:
            raise _unusable(status) from None
    try:
        told = msgspec.json.decode(content, type=_Problem)
    except msgspec.DecodeError:
        raise _unusable(status) from None
    match status:
        case 401 | 403:
            raise Denied("join.denied", told.detail, hint=told.hint)
        case 409:
            raise Conflict(told.code, told.detail, hint=told.hint)
        case 400 | 422:
            raise InvalidInput(told.code, told.detail, hint=told.hint)
        case _:
            raise Unavailable("join.unavailable", told.detail or f"central answered with HTTP {status}", hint=told.hint)


def _post(endpoint: Endpoint, body: bytes) -> tuple[int, bytes]:
    connection = open_connection(endpoint, TIMEOUT_S)
    network = unreachable_as(
        "link.unreachable",
        endpoint,
        trust_hint="for a certificate authority of your own, give --ca-file FILE",
        hint="run the command again",
    )
    try:
        with network:
            response = send_request(connection, endpoint, "POST", JOIN_PATH, body)
            return response.status, read_bounded(response, ANSWER_BYTES_MAX)
    finally:
        connection.close()


def _unusable(status: int) -> Unavailable:
    return Unavailable("link.unusable", f"what answered (HTTP {status}) is no central that sites can join")
