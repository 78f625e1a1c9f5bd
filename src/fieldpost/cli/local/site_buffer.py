"""`fieldpost site doctor`, `export`, `import`, `compact`, `salvage`: maintenance of a site's buffer."""

import os
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from fieldpost.cli.local.doctor import UNWELL, show_diagnosis
from fieldpost.cli.options import is_json
from fieldpost.cli.output import done as report
from fieldpost.cli.output import print_fields, print_json
from fieldpost.core.quantities import plural

if TYPE_CHECKING:
    from fieldpost.core.checks import Check
    from fieldpost.site.repair.transfer import Moved

ASK_S = 5.0

SiteFolderOption = Annotated[
    Path, typer.Option("--folder", "-f", envvar="FIELDPOST_FOLDER", help="Folder of the site.")
]


def pass_folder_on(context: typer.Context, folder: Path) -> None:
    """Apply a --folder before the command's name to that command."""
    source = context.get_parameter_source("folder")
    if source is not None and source.name == "COMMANDLINE":
        os.environ["FIELDPOST_FOLDER"] = str(folder)


def doctor(
    folder: SiteFolderOption = Path(),
    quick: Annotated[bool, typer.Option("--quick", help="Skip the comparison of indexes with tables.")] = False,
) -> None:
    """Check this site: buffer, backlog, disk, agent, token, settings and the pair. Changes nothing.

    The exit code is 9 if a check fails, 0 if there are only warnings.
    """
    from fieldpost.clock import SystemClock
    from fieldpost.core.checks import Diagnosis
    from fieldpost.link.http.view import plain
    from fieldpost.site.repair.doctor import examine

    found = examine(folder, SystemClock().now(), is_quick=quick)
    checks = Diagnosis((*found.diagnosis.checks, *_pair_checks(folder)))
    show_diagnosis(checks, contents=None if found.contents is None else plain(asdict(found.contents)))


def _pair_checks(folder: Path) -> "tuple[Check, ...]":
    """The checks of a node of a pair, from its running agent if there is one."""
    from fieldpost.cli.local.agent_socket import ask_agent
    from fieldpost.core.errors import FieldpostError
    from fieldpost.site.buffer.buffer import Buffer
    from fieldpost.site.config.folder import read_folder
    from fieldpost.site.pair.pair_files import PairFiles
    from fieldpost.site.pair.pair_status import PairStatus, pair_checks, stored_status

    if not PairFiles(folder).is_paired:
        return ()
    try:
        found = ask_agent(folder, "GET", "/v1/site", timeout_s=ASK_S)["pair"]
        return tuple(pair_checks(PairStatus(**found), has_agent=True))
    except (FieldpostError, KeyError, TypeError):
        pass
    try:
        with closing(Buffer(read_folder(folder).buffer_path)) as buffer:
            stored = stored_status(buffer, read_folder(folder).pair.peer)
    except FieldpostError:
        # Reported by the checks of settings and buffer.
        return ()
    return () if stored is None else tuple(pair_checks(stored, has_agent=False))


def export(
    file: Annotated[Path, typer.Argument(help="File to write; - is stdout.")], folder: SiteFolderOption = Path()
) -> None:
    """Export the buffer as JSON lines: messages, rejected box and call records. The buffer is not changed."""
    from fieldpost.clock import SystemClock
    from fieldpost.core.errors import Unavailable
    from fieldpost.site.config.folder import read_folder
    from fieldpost.site.repair.transfer import export as export_lines

    site = read_folder(folder)
    now = SystemClock().now()
    if str(file) == "-":
        _report(export_lines(site.buffer_path, site.name, now, sys.stdout.buffer), "exported", sys.stderr)
        return
    out = _open(file, "xb")
    try:
        with out:
            moved = export_lines(site.buffer_path, site.name, now, out)
            out.flush()
            os.fsync(out.fileno())
    except BaseException as error:
        # An incomplete export could be mistaken for a complete one.
        file.unlink()
        if isinstance(error, OSError):
            raise Unavailable("file.unwritable", f"cannot write {file}: {error.strerror or error}") from None
        raise
    _report(moved, "exported", sys.stdout)


def import_(
    file: Annotated[Path, typer.Argument(help="File written by `site export`; - is stdin.")],
    folder: SiteFolderOption = Path(),
    any_site: Annotated[bool, typer.Option("--any-site", help="Accept the export of another site.")] = False,
) -> None:
    """Import the messages of an export that are missing from the buffer. Errors name the line."""
    import shutil
    import tempfile

    from fieldpost.clock import SystemClock
    from fieldpost.site.buffer.buffer import Buffer
    from fieldpost.site.config.folder import read_folder
    from fieldpost.site.pair.pair_status import refuse_on_standby
    from fieldpost.site.repair.transfer import import_ as import_lines

    site = read_folder(folder)
    if site.buffer_path.exists():
        with closing(Buffer(site.buffer_path)) as buffer:
            refuse_on_standby(buffer, site.pair.peer)
    with tempfile.TemporaryFile() if str(file) == "-" else _open(file, "rb") as lines:
        if str(file) == "-":
            # Read it completely first: a slow pipe must not keep the buffer locked.
            shutil.copyfileobj(sys.stdin.buffer, lines)
        moved = import_lines(site.buffer_path, site.name, SystemClock().now(), lines, any_site=any_site)
    _report(moved, "imported", sys.stdout)


def compact(folder: SiteFolderOption = Path()) -> None:
    """Shrink the buffer's file after messages have been delivered, and truncate its write-ahead log."""
    from fieldpost.site.config.folder import read_folder
    from fieldpost.site.repair.compact import compact as compact_buffer

    done = compact_buffer(read_folder(folder).buffer_path)
    sizes = {"bytes_before": done.bytes_before, "bytes_after": done.bytes_after}
    report(sizes, f"Compacted the buffer from {done.bytes_before:,} to {done.bytes_after:,} bytes.")


def salvage(folder: SiteFolderOption = Path()) -> None:
    """Rebuild a damaged buffer from its readable rows. The damaged files are kept under a dated name.

    Stop the agent first; scripts may continue. The exit code is 9 if some rows could not be read.
    """
    from fieldpost.clock import SystemClock
    from fieldpost.site.buffer.agent_lock import AgentLock
    from fieldpost.site.config.folder import read_folder
    from fieldpost.site.repair.salvage import salvage as salvage_buffer

    site = read_folder(folder)
    with AgentLock(site.path):
        done = salvage_buffer(site.buffer_path, SystemClock().now())
    if is_json():
        print_json(
            {
                "set_aside": str(done.set_aside),
                "kept": dict(done.kept),
                "lost_ids": done.lost_ids,
                "damaged_pages": done.damaged_pages,
                "damaged_rows": done.damaged_rows,
            }
        )
    else:
        kept = ", ".join(f"{count} {table}" for table, count in done.kept.items() if count) or "nothing"
        damaged = f"{plural(done.damaged_pages, 'page')}, {plural(done.damaged_rows, 'row')}"
        print_fields(
            [
                ("damaged files", done.set_aside),
                ("kept", kept),
                ("lost", f"{plural(len(done.lost_ids), 'message')} with unreadable content" if done.lost_ids else None),
                ("damaged", None if done.is_whole else damaged),
            ]
        )
        for message_id in done.lost_ids:
            print(f"  lost {message_id}")
    if not done.is_whole:
        raise typer.Exit(UNWELL)


def _report(moved: "Moved", verb: str, stream: IO[str]) -> None:
    if is_json():
        print_json({verb: moved.lines, "already_there": moved.already_there}, stream)
        return
    counts = ", ".join(f"{count} {kind}" for kind, count in moved.lines.items()) or "nothing"
    there = f"; {moved.already_there} already present" if moved.already_there else ""
    print(f"{verb.capitalize()} {counts}{there}.", file=stream)


def _open(file: Path, mode: str) -> IO[bytes]:
    from fieldpost.core.errors import Conflict, InvalidInput

    try:
        # Readable by the owner only, like the buffer: it has the same content.
        return open(file, mode, opener=lambda name, flags: os.open(name, flags, 0o600))
    except FileExistsError:
        raise Conflict("file.exists", f"{file} already exists", hint="choose another name") from None
    except OSError as error:
        raise InvalidInput("file.unreadable", f"cannot open {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise InvalidInput("file.unreadable", f"{str(file)!r} is not a valid file name: {error}") from None
