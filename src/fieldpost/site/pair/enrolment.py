"""Making a pair: two machines exchange certificates by a one-time code.

Theory of operation. `site pair init` listens with its own certificate and prints a line: code, address and fingerprint.
`site pair join LINE` connects to the address, accepts only the certificate with this fingerprint, and sends the code
with its own certificate. Each node then has pinned the other's. The code exists only in the process of `init` and in
the line: it ends with the process, works once, and is never written to a disk.

The first node stores the pair before it answers. If the answer is lost, `init --replace` prints a new line.
"""

import asyncio
import hmac
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

import fieldpost
from fieldpost.core.errors import ConfigError, Conflict, Denied, FieldpostError, InvalidInput, Unavailable
from fieldpost.link.codec import encode
from fieldpost.link.credentials import prefix_of
from fieldpost.link.pair_messages import (
    PAIR_PROTOCOL,
    JoinMessage,
    PairJoin,
    PairJoined,
    PairJoinRefusal,
    decode_join,
)
from fieldpost.site.config.options import parse_address
from fieldpost.site.pair.pair_files import PairFiles
from fieldpost.site.pair.peer import HANDSHAKE_S, fingerprint
from fieldpost.system_error import reason_of

JOIN_BYTES_MAX = 64 * 1024
_FINGERPRINT = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PairInvitation:
    """The line that `site pair init` prints."""

    code: str = field(repr=False)
    address: str
    fingerprint: str

    @property
    def line(self) -> str:
        return f"{self.code}@{self.address}/{self.fingerprint}"

    @classmethod
    def parse(cls, text: str) -> "PairInvitation":
        """Raises InvalidInput for anything that is not such a line."""
        code, _, place = text.strip().partition("@")
        address, _, digits = place.partition("/")
        if prefix_of(code, "pair") is None or not _FINGERPRINT.fullmatch(digits):
            raise InvalidInput(
                "pair.line",
                "not the line of a pair",
                hint="it has the form fp_pair_…@HOST:PORT/…; `fieldpost site pair init` on the other node prints it",
                field="line",
            )
        parse_address(address, "line")
        return cls(code, address, digits)


async def await_join(
    files: PairFiles, invitation: PairInvitation, site: str, node: int, paired: Callable[[PairJoin], PairJoined]
) -> PairJoin:
    """Wait for the machine with the code and store the pair by `paired`; returns its request.

    `node` is this node. Refused requests change nothing. Raises ConfigError if the address cannot be used.
    """
    host, port = parse_address(invitation.address, "listen")
    joined: asyncio.Future[PairJoin] = asyncio.get_running_loop().create_future()
    turn = asyncio.Lock()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, TimeoutError):
            async with turn, asyncio.timeout(HANDSHAKE_S):
                try:
                    request = _checked(await _receive(reader), invitation, site, node)
                    if joined.done():
                        raise Denied("pair.code", "the code was used already")
                    reply: JoinMessage = await asyncio.to_thread(paired, request)
                    joined.set_result(request)
                except FieldpostError as error:
                    reply = PairJoinRefusal(error.code, error.message)
                await _send(writer, reply)
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(files.certificate, files.key)
        server = await asyncio.start_server(answer, host, port, ssl=context, ssl_handshake_timeout=HANDSHAKE_S)
    except OSError as error:
        raise ConfigError("pair.listen", f"{host}:{port} cannot be used: {error.strerror or error}") from None
    try:
        return await joined
    finally:
        server.close()
        async with turn:
            # The answer is on its way before the listener ends.
            pass


async def request_join(invitation: PairInvitation, request: PairJoin) -> tuple[PairJoined, str]:
    """Send the code and this node's certificate; returns the answer and the other node's certificate in PEM.

    Raises Denied if the machine at the address shows another certificate or refuses, and Unavailable if it does not
    answer.
    """
    host, port = parse_address(invitation.address, "line")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="")
            try:
                certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                if not hmac.compare_digest(fingerprint(certificate), invitation.fingerprint):
                    raise Denied("pair.stranger", f"the machine at {invitation.address} shows another certificate")
                await _send(writer, request)
                answer = await _receive(reader)
            finally:
                writer.close()
    except (OSError, EOFError, TimeoutError) as error:
        raise Unavailable(
            "pair.unreachable",
            f"the node at {invitation.address} does not answer: {reason_of(error)}",
            hint="`fieldpost site pair init` must be running there",
        ) from None
    if isinstance(answer, PairJoined):
        return answer, ssl.DER_cert_to_PEM_cert(certificate)
    _refused(answer)


def _refused(answer: JoinMessage) -> NoReturn:
    if isinstance(answer, PairJoinRefusal):
        raise Denied(answer.code, answer.error)
    raise Unavailable("pair.unusable", "the other node sent an answer that does not fit")


def _checked(request: JoinMessage, invitation: PairInvitation, site: str, node: int) -> PairJoin:
    if not isinstance(request, PairJoin):
        raise InvalidInput("pair.no_join", "the first message must be the request to join")
    if not hmac.compare_digest(request.code.encode(), invitation.code.encode()):
        raise Denied("pair.code", "the code is not valid")
    if request.protocol != PAIR_PROTOCOL:
        raise Conflict(
            "pair.version",
            f"this node has Fieldpost {fieldpost.__version__} with version {PAIR_PROTOCOL} of the pair protocol, not "
            f"{request.protocol}: upgrade the older node",
        )
    if request.site != site:
        raise Conflict("pair.other_site", f"this is a node of the site {site}, not of {request.site[:100]}")
    if request.node == node:
        raise Conflict(
            "pair.same_node",
            f"both machines have a token of node {node}: at central, run `fieldpost sites add-node {site}` and set up "
            "the second machine with the line it prints",
        )
    parse_address(request.listen, "listen")
    try:
        ssl.PEM_cert_to_DER_cert(request.certificate)
    except ValueError:
        raise InvalidInput("pair.certificate", "certificate must be in PEM", field="certificate") from None
    return request


async def _receive(reader: asyncio.StreamReader) -> JoinMessage:
    size = int.from_bytes(await reader.readexactly(4), "big")
    if size > JOIN_BYTES_MAX:
        raise InvalidInput("link.too_large", f"the message has {size} bytes; the maximum is {JOIN_BYTES_MAX}")
    return decode_join(await reader.readexactly(size))


async def _send(writer: asyncio.StreamWriter, message: JoinMessage) -> None:
    data = encode(message)
    writer.write(len(data).to_bytes(4, "big") + data)
    await writer.drain()
