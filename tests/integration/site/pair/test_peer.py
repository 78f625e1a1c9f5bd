"""The connection between two nodes: mutual TLS with pinned certificates, over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fieldpost.clock import SystemClock
from fieldpost.core.errors import ConfigError, Denied, FieldpostError
from fieldpost.link.messages import FRAME_BYTES_MAX
from fieldpost.site.pair.peer import PairIdentity, PairListener, connect
from fieldpost.site.pair.session import PairSession
from support.pair_buffers import NodeBuffer, differing, leadership_of, pair_buffers
from support.running_central import until

SITE = "plant-7"
HOST = "127.0.0.1"
Nodes = tuple[NodeBuffer, NodeBuffer]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with pair_buffers(tmp_path) as found:
        yield found


class Certificate:
    """A certificate with its key, self-signed or signed by another one."""

    def __init__(self, folder: Path, name: str, signer: "Certificate | None" = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(self.subject)
            .issuer_name((signer or self).subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign((signer or self).key, hashes.SHA256())
        )
        self.pem = built.public_bytes(serialization.Encoding.PEM).decode()
        self.certificate_file, self.key_file = folder / f"{name}.pem", folder / f"{name}.key"
        self.certificate_file.write_text(self.pem)
        self.key_file.write_bytes(
            self.key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    def identity(self, peer: "Certificate") -> PairIdentity:
        return PairIdentity(self.certificate_file, self.key_file, peer.pem)


@pytest.fixture
def certificates(tmp_path: Path) -> tuple[Certificate, Certificate]:
    return Certificate(tmp_path, "node-0"), Certificate(tmp_path, "node-1")


def session_of(node: NodeBuffer) -> PairSession:
    return PairSession(node.buffer, SITE, lambda: node.now, leadership_of(node))


@asynccontextmanager
async def listening(node: NodeBuffer, identity: PairIdentity) -> AsyncIterator[tuple[PairListener, int]]:
    listener = PairListener(identity, partial(session_of, node), SystemClock())
    port = await listener.start(HOST, 0)
    try:
        yield listener, port
    finally:
        await listener.close()


async def are_equal(nodes: Nodes) -> bool:
    return not await asyncio.to_thread(differing, *nodes)


async def first_byte(port: int, context: ssl.SSLContext, greeting: bytes) -> bytes:
    """The first byte that a listener sends to this caller."""
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname="")
    writer.write(len(greeting).to_bytes(4, "big") + greeting)
    return await reader.readexactly(1)


async def test_two_nodes_exchange_their_changes(nodes: Nodes, certificates: tuple[Certificate, Certificate]) -> None:
    first, second = certificates
    async with listening(nodes[0], first.identity(second)) as (_, port):
        session = session_of(nodes[1])
        connection = await connect(second.identity(first), HOST, port, session, SystemClock())
        running = asyncio.create_task(connection.run())
        for _ in range(3):
            for node in nodes:
                await asyncio.to_thread(node.send)
                await asyncio.to_thread(node.issue)
            await until(partial(are_equal, nodes))
            assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.threat(21)
@pytest.mark.parametrize("kind", ["other", "signed by the node", "none"])
async def test_caller_without_the_nodes_certificate_is_refused_and_nothing_is_read(
    nodes: Nodes, certificates: tuple[Certificate, Certificate], tmp_path: Path, kind: str
) -> None:
    first, second = certificates
    before = nodes[0].rows("SELECT name, value FROM facts ORDER BY name")
    async with listening(nodes[0], first.identity(second)) as (_, port):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if kind != "none":
            shown = Certificate(tmp_path, "intruder", second if kind == "signed by the node" else None)
            context.load_cert_chain(shown.certificate_file, shown.key_file)
        with pytest.raises((OSError, EOFError)) as caught:
            await asyncio.wait_for(first_byte(port, context, session_of(nodes[1]).greeting()), 20)
    assert not isinstance(caught.value, TimeoutError)
    assert nodes[0].rows("SELECT name, value FROM facts ORDER BY name") == before


@pytest.mark.threat(21)
async def test_caller_without_tls_gets_nothing(nodes: Nodes, certificates: tuple[Certificate, Certificate]) -> None:
    first, second = certificates
    async with listening(nodes[0], first.identity(second)) as (_, port):
        reader, writer = await asyncio.open_connection(HOST, port)
        greeting = session_of(nodes[1]).greeting()
        writer.write(len(greeting).to_bytes(4, "big") + greeting)
        async with asyncio.timeout(20):
            answer = await reader.read(65_536)
        writer.close()
    assert SITE.encode() not in answer


@pytest.mark.threat(21)
@pytest.mark.parametrize("is_signed", [True, False])
async def test_node_does_not_talk_to_an_impostor(
    nodes: Nodes, certificates: tuple[Certificate, Certificate], tmp_path: Path, is_signed: bool
) -> None:
    first, second = certificates
    impostor = Certificate(tmp_path, "impostor", first if is_signed else None)
    async with listening(nodes[0], impostor.identity(second)) as (_, port):
        with pytest.raises(Denied) as caught:
            await connect(second.identity(first), HOST, port, session_of(nodes[1]), SystemClock())
    assert caught.value.code == "pair.stranger"


async def test_frame_beyond_the_limit_ends_the_connection(
    nodes: Nodes, certificates: tuple[Certificate, Certificate]
) -> None:
    first, second = certificates
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(answer, HOST, 0, ssl=first.identity(second).server_context())
    port = server.sockets[0].getsockname()[1]
    connection = await connect(second.identity(first), HOST, port, session_of(nodes[1]), SystemClock())
    with pytest.raises(FieldpostError) as caught:
        await connection.run()
    assert caught.value.code == "link.too_large"
    await asyncio.wait_for(ended.wait(), 20)
    server.close()


@pytest.mark.threat(21)
@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "*"])
async def test_listener_needs_a_named_address(
    nodes: Nodes, certificates: tuple[Certificate, Certificate], host: str
) -> None:
    listener = PairListener(certificates[0].identity(certificates[1]), partial(session_of, nodes[0]), SystemClock())
    with pytest.raises(ConfigError, match="must name one address"):
        await listener.start(host, 0)


async def test_unreadable_certificate_is_an_error_of_the_configuration(
    certificates: tuple[Certificate, Certificate], tmp_path: Path
) -> None:
    identity = replace(certificates[0].identity(certificates[1]), key_file=tmp_path / "missing.key")
    with pytest.raises(ConfigError, match="cannot be used"):
        identity.client_context()
