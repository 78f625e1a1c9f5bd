"""Enrolment: a site sends central its enrolment code and the digest of a token that the site has created.

The code works for one site and one exchange, and enrolment does not transmit the token itself. If the answer is lost,
the site repeats the request with the same token, and central treats it as the same exchange.
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


class Joined(msgspec.Struct, frozen=True, omit_defaults=True):
    """Central's answer: the name of the site, and the node of the code."""

    name: str
    node: int = 0


class _Problem(msgspec.Struct, frozen=True):
    code: str = ""
    detail: str = ""
    hint: str | None = None


def parse_invitation(text: str) -> tuple[str, str]:
    """Split `fp_join_…@https://central…` into code and address, or raise InvalidInput or ConfigError."""
    code, at, url = text.strip().partition("@")
    if not at or prefix_of(code, "join") is None:
        raise InvalidInput(
            "join.invitation",
            "not an invitation",
            hint="an invitation has the form fp_join_…@https://central…; create one with: fieldpost sites add NAME",
            field="invitation",
        )
    return code, check_central_url(url)


def join(
    url: str,
    ca_file: Path | None,
    code: str,
    token: IssuedToken,
    site: str | None = None,
    node: int | None = None,
    *,
    allow_plain: bool = False,
) -> Joined:
    """Enrol with a code and return the site and node; `site` and `node` are those of the folder, if known.

    Raises Denied for an invalid code, Conflict for the code of another site or node, Unavailable without an answer.
    """
    request = {"prefix": token.prefix, "digest": token.digest.hex(), "site": site, "node": node}
    status, content = _post(Endpoint(url, code, ca_file, allow_plain=allow_plain), msgspec.json.encode(request))
    if status == HTTPStatus.OK:
        try:
            return msgspec.json.decode(content, type=Joined)
        except msgspec.DecodeError:
            raise _unusable(status) from None
    try:
        problem = msgspec.json.decode(content, type=_Problem)
    except msgspec.DecodeError:
        raise _unusable(status) from None
    match status:
        case 401 | 403:
            raise Denied("join.denied", problem.detail, hint=problem.hint)
        case 409:
            raise Conflict(problem.code, problem.detail, hint=problem.hint)
        case 400 | 422:
            raise InvalidInput(problem.code, problem.detail, hint=problem.hint)
        case _:
            raise Unavailable(
                "join.unavailable", problem.detail or f"central answered with HTTP {status}", hint=problem.hint
            )


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
    return Unavailable("link.unusable", f"the address answered HTTP {status} and does not seem to be central")
