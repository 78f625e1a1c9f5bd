"""`fieldpost site doctor`, `export`, `import`, `compact`, `salvage`: the care of a site's buffer on this machine."""

import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from fieldpost.cli.local.doctor import UNWELL
from fieldpost.cli.output import JsonOption, print_fields, print_json, print_table, say

if TYPE_CHECKING:
    from fieldpost.site.repair.doctor import Contents
    from fieldpost.site.repair.transfer import Moved

SiteFolderOption = Annotated[
    Path, typer.Option("--folder", "-f", envvar="FIELDPOST_FOLDER", help="The site's folder.", show_default=True)
]


def pass_folder_on(context: typer.Context, folder: Path) -> None:
    """Let a folder that was given before the name of a command hold for that command."""
    source = context.get_parameter_source("folder")
    if source is not None and source.name == "COMMANDLINE":
        os.environ["FIELDPOST_FOLDER"] = str(folder)


def doctor(
    folder: SiteFolderOption = Path(),
    quick: Annotated[bool, typer.Option("--quick", help="Do not compare indexes with tables.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Look whether all is well with this site: its buffer, what waits in it, disk, agent, token, settings.

    It changes nothing. The exit code is 9 when a check fails, and 0 when there are warnings at most.
    """
    from fieldpost.clock import SystemClock
    from fieldpost.core.checks import CheckVerdict
    from fieldpost.site.repair.doctor import examine

    found = examine(folder, SystemClock().now(), is_quick=quick)
    checks = found.diagnosis.checks
    if as_json:
        told = [{"name": check.name, "status": check.verdict.value, "detail": check.detail} for check in checks]
        contents = None if found.contents is None else _contents(found.contents)
        print_json({"status": found.diagnosis.verdict.value, "checks": told, "contents": contents})
    else:
        rows = [(check.name, check.verdict.value, check.detail) for check in checks]
        print_table(("check", "status", "what was found"), rows, "")
    if found.diagnosis.verdict is CheckVerdict.FAILING:
        raise typer.Exit(UNWELL)


def export(
    file: Annotated[Path, typer.Argument(help="Where to write it; - is standard output.")],
    folder: SiteFolderOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Write what is in the buffer as JSON lines: messages, the rejected box, tracking records. It stays there too."""
    from fieldpost.clock import SystemClock
    from fieldpost.core.errors import Unavailable
    from fieldpost.site.config.folder import read_folder
    from fieldpost.site.repair.transfer import export as export_lines

    site = read_folder(folder)
    now = SystemClock().now()
    if str(file) == "-":
        _tell(export_lines(site.buffer_path, site.name, now, sys.stdout.buffer), "exported", as_json, sys.stderr)
        return
    out = _open(file, "xb")
    try:
        with out:
            moved = export_lines(site.buffer_path, site.name, now, out)
            out.flush()
            os.fsync(out.fileno())
    except BaseException as error:
        # Half an export would look like a whole one.
        file.unlink()
        if isinstance(error, OSError):
            raise Unavailable("file.unwritable", f"{file} cannot be written: {error.strerror or error}") from None
        raise
    _tell(moved, "exported", as_json, sys.stdout)


def import_(
    file: Annotated[Path, typer.Argument(help="What `site export` wrote; - is standard input.")],
    folder: SiteFolderOption = Path(),
    any_site: Annotated[bool, typer.Option("--any-site", help="Take another site's export too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Add to the buffer what an export holds and the buffer does not. What is wrong is told by its line."""
    import shutil
    import tempfile

    from fieldpost.clock import SystemClock
    from fieldpost.site.config.folder import read_folder
    from fieldpost.site.repair.transfer import import_ as import_lines

    site = read_folder(folder)
    with tempfile.TemporaryFile() if str(file) == "-" else _open(file, "rb") as lines:
        if str(file) == "-":
            # Read to its end first: nobody may have to wait for a slow pipe while the buffer is being written.
            shutil.copyfileobj(sys.stdin.buffer, lines)
        moved = import_lines(site.buffer_path, site.name, SystemClock().now(), lines, any_site=any_site)
    _tell(moved, "imported", as_json, sys.stdout)


def compact(folder: SiteFolderOption = Path(), as_json: JsonOption = False) -> None:
    """Give back the room that delivered messages left in the buffer's file, and empty its log."""
    from fieldpost.site.config.folder import read_folder
    from fieldpost.site.repair.compact import compact as compact_buffer

    done = compact_buffer(read_folder(folder).buffer_path)
    say(
        {"bytes_before": done.bytes_before, "bytes_after": done.bytes_after},
        as_json,
        f"{done.bytes_before:,} bytes before, {done.bytes_after:,} bytes now.",
    )


def salvage(folder: SiteFolderOption = Path(), as_json: JsonOption = False) -> None:
    """Set a damaged buffer aside under a dated name, and keep all that can be read of it in a fresh one.

    Nothing is removed. Stop the agent first; scripts may go on. The exit code is 9 when something could not be read.
    """
    from fieldpost.clock import SystemClock
    from fieldpost.site.buffer.agent_lock import AgentLock
    from fieldpost.site.config.folder import read_folder
    from fieldpost.site.repair.salvage import salvage as salvage_buffer

    site = read_folder(folder)
    with AgentLock(site.path):
        done = salvage_buffer(site.buffer_path, SystemClock().now())
    if as_json:
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
        print_fields(
            [
                ("set aside", done.set_aside),
                ("kept", kept),
                ("lost", f"{len(done.lost_ids)} messages whose content cannot be read" if done.lost_ids else None),
                ("damaged", f"{done.damaged_pages} pages, {done.damaged_rows} rows" if not done.is_whole else None),
            ]
        )
        for message_id in done.lost_ids:
            print(f"  lost {message_id}")
    if not done.is_whole:
        raise typer.Exit(UNWELL)


def _contents(contents: "Contents") -> dict[str, object]:
    from fieldpost.core.times import to_text

    oldest = contents.oldest_created_at
    return {
        "messages": contents.messages,
        "rejected": contents.rejected,
        "operations": contents.operations,
        "events": contents.events,
        "oldest_created_at": None if oldest is None else to_text(oldest),
    }


def _tell(moved: "Moved", verb: str, as_json: bool, stream: IO[str]) -> None:
    if as_json:
        print_json({verb: moved.lines, "already_there": moved.already_there}, stream)
        return
    counts = ", ".join(f"{count} {kind}" for kind, count in moved.lines.items()) or "nothing"
    there = f"; {moved.already_there} were there already" if moved.already_there else ""
    print(f"{verb}: {counts}{there}", file=stream)


def _open(file: Path, mode: str) -> IO[bytes]:
    from fieldpost.core.errors import Conflict, InvalidInput

    try:
        # For its owner alone, as the buffer is: an export holds the same.
        return open(file, mode, opener=lambda name, flags: os.open(name, flags, 0o600))
    except FileExistsError:
        raise Conflict("file.exists", f"{file} is there already", hint="choose another name") from None
    except OSError as error:
        raise InvalidInput("file.unreadable", f"{file} cannot be opened: {error.strerror or error}") from None
    except ValueError as error:
        raise InvalidInput("file.unreadable", f"{str(file)!r} is no file: {error}") from None
