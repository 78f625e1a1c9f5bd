"""Enrolment: a site exchanges its one-time code for a token."""

from binascii import unhexlify

from fieldpost.central.operate.sites import Claimant
from fieldpost.core.errors import InvalidInput
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.link.http.body import Body
from fieldpost.link.join import Joined

DIGEST_LENGTH = 64


class Join(Body, frozen=True, kw_only=True):
    prefix: str
    digest: str
    site: str | None = None
    node: int | None = None


async def join(call: Call) -> ApiAnswer:
    """`POST /link/v1/join`: a site sends its code and the digest of its new token, and gets its name."""
    asked = await call.read(Join)
    if len(asked.digest) != DIGEST_LENGTH or not asked.digest.isascii() or not _is_hex(asked.digest):
        raise InvalidInput("join.digest", f"digest must be {DIGEST_LENGTH} hexadecimal digits", field="digest")
    claimant = Claimant(asked.prefix, unhexlify(asked.digest), asked.site, asked.node)
    joined = await call.operate.sites.join(call.code, claimant)
    return ApiAnswer(Joined(joined.site, joined.node))


def _is_hex(text: str) -> bool:
    return all(character in "0123456789abcdef" for character in text)
