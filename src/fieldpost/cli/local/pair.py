"""`fieldpost site pair`: make a pair of two nodes, and end it."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldpost.cli.local.site_buffer import SiteFolderOption
from fieldpost.cli.options import is_json
from fieldpost.cli.output import done, print_fields, print_json

if TYPE_CHECKING:
    from fieldpost.site.buffer.buffer import Buffer
    from fieldpost.site.config.folder import Folder
    from fieldpost.site.pair.pairing import Paired

ListenOption = Annotated[
    str,
    typer.Option(help="Address of this machine for the other node, HOST:PORT.  [default: [pair] listen in site.toml]"),
]

SWITCH_S = 120.0
"""How long a switch may take: waiting for calls in flight and for the copy, on both nodes."""

app = typer.Typer(help="Make a pair of two nodes of this site, or end it.", no_args_is_help=True)


@app.command()
def init(
    listen: ListenOption = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Pair with another machine than before, which is gone.")
    ] = False,
    minutes: Annotated[int, typer.Option(min=1, max=1440, help="How long to wait for the other node.")] = 15,
    folder: SiteFolderOption = Path(),
) -> None:
    """Make this machine a node of a pair: prints a line for the other machine, and waits until that has joined.

    Stop the agent first; scripts may continue. Start the agents of both machines afterwards. The line works once, while
    this command runs.
    """
    import asyncio
    import os

    from fieldpost.clock import SystemClock
    from fieldpost.core.errors import Unavailable
    from fieldpost.link.credentials import ENTROPY_BYTES
    from fieldpost.site.pair.pairing import invite

    def show(line: str) -> None:
        if is_json():
            print_json({"line": line})
        else:
            print("Run on the other machine, in the folder of this site:")
            print(f"  fieldpost site pair join {line} --listen HOST:PORT")
        sys.stdout.flush()

    with _stopped_site(folder) as (site, buffer):

        async def work() -> "Paired":
            async with asyncio.timeout(60 * minutes):
                return await invite(
                    site, buffer, listen, os.urandom(ENTROPY_BYTES), SystemClock(), show, replaces=replace
                )

        try:
            _report(asyncio.run(work()))
        except TimeoutError:
            raise Unavailable("pair.no_join", f"no machine has joined within {minutes} minutes") from None


@app.command()
def join(
    line: Annotated[str, typer.Argument(help="Line that `site pair init` printed on the other node; - reads stdin.")],
    listen: ListenOption = "",
    folder: SiteFolderOption = Path(),
) -> None:
    """Join the pair of another node and take the first copy of its buffer.

    Set up this machine first with the line that `fieldpost sites add-node SITE` printed at central. Stop the agent;
    scripts may continue.
    """
    import asyncio

    from fieldpost.clock import SystemClock
    from fieldpost.site.pair.pairing import join as join_pair

    text = sys.stdin.readline() if line == "-" else line
    with _stopped_site(folder) as (site, buffer):
        _report(asyncio.run(join_pair(site, buffer, text, listen, SystemClock())))


@app.command()
def leave(
    force: Annotated[bool, typer.Option("--force", help="The other node is gone: continue here alone.")] = False,
    reason: Annotated[str, typer.Option(help="Why, for the event log; required with --force.")] = "",
    folder: SiteFolderOption = Path(),
) -> None:
    """Leave the pair: hand over everything to the other node, which continues as a single site.

    The buffer of this machine is kept under a dated name. With --force this machine continues as a single site instead.
    """
    import asyncio

    from fieldpost.clock import SystemClock
    from fieldpost.core.errors import InvalidInput
    from fieldpost.site.pair import pairing

    if force != bool(reason.strip()):
        raise InvalidInput("pair.reason", "--force and --reason must be given together", field="reason")
    clock = SystemClock()
    with _stopped_site(folder) as (site, buffer):
        if force:
            pairing.leave_alone(site, buffer, reason.strip(), clock.now())
            done({"site": site.name, "is_single": True}, "Left the pair. This machine continues as a single site.")
            return
        asyncio.run(pairing.leave(site, buffer, clock))
        buffer.close()
        name = pairing.set_aside(site, clock.now())
    done(
        {"site": site.name, "is_single": False, "set_aside": name},
        f"Left the pair; the other node continues. The buffer of this machine is kept as {name}.\n"
        f"At central, remove the node: fieldpost sites remove-node {site.name} {site.node}",
    )


@app.command()
def compare(folder: SiteFolderOption = Path()) -> None:
    """Compare the rows of both nodes by digests now, and copy again those that differ.

    The agents do this every three minutes and after each snapshot. The leader compares all rows, the standby its own
    notifications.
    """
    from fieldpost.cli.local.agent_socket import ask_agent
    from fieldpost.site.config.folder import read_folder

    read_folder(folder)
    found = ask_agent(folder, "POST", "/v1/pair/compare", {}, timeout_s=SWITCH_S)
    skipped = f", {found['skipped']} skipped because a node was busy" if found["skipped"] else ""
    done(found, f"{found['compared']} ranges of rows compared, {found['repaired']} copied again{skipped}.")


def demote(
    reason: Annotated[str, typer.Option(help="Why, for the event log.")] = "", folder: SiteFolderOption = Path()
) -> None:
    """Hand the leadership of the pair over to the other node.

    Waits for the calls in flight and until the other node has everything.
    """
    _switch(folder, "demote", {"reason": reason})


def promote(
    force: Annotated[bool, typer.Option("--force", help="Take over without the other node, which is gone.")] = False,
    reason: Annotated[str, typer.Option(help="Why, for the event log and central; required with --force.")] = "",
    folder: SiteFolderOption = Path(),
) -> None:
    """Make this node the leader of the pair: the other one hands over.

    With --force the other node is not asked. If it still runs, calls may be executed twice until the two hear each
    other.
    """
    from fieldpost.core.errors import InvalidInput

    if force and not reason.strip():
        raise InvalidInput("pair.reason", "--force needs a --reason", field="reason")
    _switch(folder, "promote", {"reason": reason, "is_forced": force})


def _switch(folder: Path, action: str, body: dict[str, object]) -> None:
    from fieldpost.cli.local.agent_socket import ask_agent
    from fieldpost.cli.local.site_messages import pair_fields
    from fieldpost.site.config.folder import read_folder

    read_folder(folder)
    pair = ask_agent(folder, "POST", f"/v1/pair/{action}", body, timeout_s=SWITCH_S)
    if is_json():
        print_json(pair)
    else:
        print_fields(pair_fields(pair))


@contextmanager
def _stopped_site(folder: Path) -> "Iterator[tuple[Folder, Buffer]]":
    """The site's folder and buffer, while no agent runs."""
    from fieldpost.site.buffer.agent_lock import AgentLock
    from fieldpost.site.buffer.buffer import Buffer
    from fieldpost.site.config.folder import read_folder

    site = read_folder(folder)
    with AgentLock(site.path), closing(Buffer(site.buffer_path, site.buffer, site.events)) as buffer:
        yield site, buffer


def _report(paired: "Paired") -> None:
    record = {"node": paired.node, "peer": paired.peer, "is_copied": paired.is_copied}
    copied = "The first copy is complete." if paired.is_copied else "The agents complete the first copy."
    done(record, f"This is node {paired.node} of a pair with {paired.peer}. {copied}\nStart the agents: fieldpost site")
