"""Making and ending a pair, for the commands `site pair init`, `join` and `leave`. The agent must not run meanwhile."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from random import Random

import fieldpost
from fieldpost.clock import Clock
from fieldpost.core.errors import Conflict, FieldpostError, InvalidInput, Unavailable
from fieldpost.core.sites.site_event import SiteEventKind
from fieldpost.link.credentials import issue
from fieldpost.link.pair_messages import PAIR_PROTOCOL, PairJoin, PairJoined
from fieldpost.site.buffer import event_log
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state
from fieldpost.site.buffer.tracking import Tracking
from fieldpost.site.config.folder import Folder
from fieldpost.site.config.options import parse_address
from fieldpost.site.config.pair_section import remove_pair_section, write_pair_section
from fieldpost.site.pair.enrolment import PairInvitation, await_join, request_join
from fieldpost.site.pair.leadership import Leadership
from fieldpost.site.pair.pair_files import PairFiles
from fieldpost.site.pair.peer import PairListener, connect
from fieldpost.site.pair.session import PairSession

CONNECT_S = 60.0
"""How long to wait for the other node's connection."""
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Paired:
    """A pair that was made."""

    node: int
    peer: str
    is_copied: bool
    """Whether the first copy was completed; the agents complete it otherwise."""


async def invite(
    folder: Folder,
    buffer: Buffer,
    listen: str,
    entropy: bytes,
    clock: Clock,
    show: Callable[[str], None],
    *,
    replaces: bool = False,
) -> Paired:
    """Print the line by `show`, wait for the other machine and let it take the first copy.

    `replaces` pairs with another machine than before. Raises Conflict if the node is already in a pair.
    """
    listen = _address(listen or folder.pair.listen, "listen")
    files = PairFiles(folder.path)
    if files.is_paired and not replaces:
        raise Conflict(
            "pair.exists",
            f"this node already belongs to a pair, with {folder.pair.peer}",
            hint="a site has at most two nodes; --replace pairs it with another machine instead",
        )
    digits = files.ensure_certificate(f"{folder.name} node {folder.node}")
    invitation = PairInvitation(issue("pair", entropy).text, listen, digits)

    def paired(request: PairJoin) -> PairJoined:
        if buffer.read(pair_state.find) is None:
            buffer.write(pair_state.create, folder.node)
        incarnation = Tracking(buffer.read).incarnation()
        write_pair_section(folder, listen, request.listen)
        files.store_peer(request.certificate, incarnation)
        return PairJoined(incarnation)

    show(invitation.line)
    request = await await_join(files, invitation, folder.name, folder.node, paired)
    is_copied = await _exchange(folder, files, buffer, clock, listen=listen)
    return Paired(folder.node, request.listen, is_copied)


async def join(folder: Folder, buffer: Buffer, line: str, listen: str, clock: Clock) -> Paired:
    """Become the other node of the pair of this line, and take the first copy.

    Raises Denied, Conflict or Unavailable with the reason; nothing has changed then.
    """
    invitation = PairInvitation.parse(line)
    listen = _address(listen or folder.pair.listen, "listen")
    files = PairFiles(folder.path)
    if files.is_paired:
        raise Conflict("pair.exists", f"this node already belongs to a pair, with {folder.pair.peer}")
    files.ensure_certificate(f"{folder.name} node {folder.node}")
    request = PairJoin(
        protocol=PAIR_PROTOCOL,
        version=fieldpost.__version__,
        code=invitation.code,
        site=folder.name,
        node=folder.node,
        certificate=files.certificate.read_text(encoding="ascii"),
        listen=listen,
    )
    joined, certificate = await request_join(invitation, request)
    if buffer.read(pair_state.find) is not None:
        # Of an earlier pair, or of a join whose last step failed.
        buffer.write(pair_state.remove)
    buffer.write(pair_state.create, folder.node, joined.incarnation)
    write_pair_section(folder, listen, invitation.address)
    files.store_peer(certificate, joined.incarnation)
    is_copied = await _exchange(folder, files, buffer, clock, peer=invitation.address)
    return Paired(folder.node, invitation.address, is_copied)


async def leave(folder: Folder, buffer: Buffer, clock: Clock) -> None:
    """Hand over all rows to the other node, which continues as a single site, and leave the pair.

    Raises Unavailable if the other node cannot be reached; nothing has changed then.
    """
    files = _require_pair(folder)
    if buffer.read(pair_state.get).is_leading:
        buffer.write(pair_state.stop_leading)
    listen = folder.pair.listen if folder.node == 0 else ""
    if not await _exchange(folder, files, buffer, clock, listen=listen, peer=folder.pair.peer, leaves=True):
        raise Unavailable(
            "pair.unreachable",
            f"the other node at {folder.pair.peer} does not answer",
            hint="start its agent; if the machine is gone, give --force and a reason",
        )
    _end(folder, files, buffer)


def leave_alone(folder: Folder, buffer: Buffer, reason: str, now: datetime) -> None:
    """Continue as a single site without the other node, which is gone; its copied notifications become this node's."""
    files = _require_pair(folder)
    entry = event_log.event(SiteEventKind.PAIR_SWITCHED, now, f"left the pair without the other node: {reason}")
    buffer.write(event_log.append, [entry])
    _end(folder, files, buffer)


def become_single(folder: Folder, buffer: Buffer, now: datetime) -> None:
    """Continue as a single site after the other node has left the pair."""
    entry = event_log.event(SiteEventKind.PAIR_SWITCHED, now, "the other node has left the pair")
    buffer.write(event_log.append, [entry])
    _end(folder, PairFiles(folder.path), buffer)


def set_aside(folder: Folder, now: datetime) -> str:
    """Rename the buffer of a node that has left, so that nobody executes its rows again; returns the new name."""
    name = f"{folder.buffer_path.name}-left-{now:%Y%m%dT%H%M%SZ}"
    for suffix in ("-shm", "-wal", ""):
        with suppress(FileNotFoundError):
            os.replace(folder.path / f"{folder.buffer_path.name}{suffix}", folder.path / f"{name}{suffix}")
    return name


def _end(folder: Folder, files: PairFiles, buffer: Buffer) -> None:
    buffer.write(pair_state.remove)
    files.remove()
    remove_pair_section(folder)


def _require_pair(folder: Folder) -> PairFiles:
    files = PairFiles(folder.path)
    if not files.is_paired:
        raise Conflict("pair.none", "this site has no pair")
    return files


def _address(text: str, name: str) -> str:
    if not text:
        raise InvalidInput("pair.listen", f"{name} is missing: give --listen HOST:PORT", field=name)
    parse_address(text, name)
    return text


async def _exchange(
    folder: Folder,
    files: PairFiles,
    buffer: Buffer,
    clock: Clock,
    *,
    listen: str = "",
    peer: str = "",
    leaves: bool = False,
) -> bool:
    """Exchange all changes with the other node, at the address `listen` or else by connecting to `peer`.

    Returns whether both nodes had all changes or, with `leaves`, whether the other one has let this one leave.
    """
    leadership = Leadership(buffer, clock.monotonic, Random().getrandbits(48))
    sessions: list[PairSession] = []

    def begin() -> PairSession:
        sessions.append(PairSession(buffer, folder.name, clock.now, leadership))
        return sessions[-1]

    def is_done() -> bool:
        if not sessions or not sessions[-1].is_ready or sessions[-1].lag():
            return False
        if leaves:
            sessions[-1].leave()
            return sessions[-1].has_left
        return sessions[-1].is_complete

    async def is_done_in_time() -> bool:
        until = clock.monotonic() + CONNECT_S
        while not await asyncio.to_thread(is_done):
            if clock.monotonic() > until and not (sessions and sessions[-1].is_ready):
                return False
            await clock.sleep(POLL_S)
        return True

    work = _accept(files, begin, clock, listen) if listen else _call(files, begin, clock, peer)
    connected = asyncio.create_task(work)
    try:
        return await is_done_in_time()
    finally:
        # The other node needs the last answer of this one.
        await clock.sleep(POLL_S)
        connected.cancel()
        await asyncio.gather(connected, return_exceptions=True)


async def _accept(files: PairFiles, begin: Callable[[], PairSession], clock: Clock, listen: str) -> None:
    listener = PairListener(files.identity(), begin, clock)
    await listener.start(*parse_address(listen, "listen"))
    try:
        await asyncio.Event().wait()
    finally:
        await listener.close()


async def _call(files: PairFiles, begin: Callable[[], PairSession], clock: Clock, peer: str) -> None:
    while True:
        with suppress(FieldpostError):
            await (await connect(files.identity(), *parse_address(peer, "peer"), begin(), clock)).run()
        await clock.sleep(POLL_S)
