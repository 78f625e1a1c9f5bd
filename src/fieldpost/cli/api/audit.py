"""`fieldpost audit`: the audit log."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from fieldpost.cli.api import audit_verify
from fieldpost.cli.arguments import CursorOption, LimitOption
from fieldpost.cli.filters import filtered
from fieldpost.cli.options import central
from fieldpost.cli.output import moment, show_table, table
from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.core.quantities import plural
from fieldpost.core.search.filters import AUDIT_FILTERS

app = typer.Typer(help="The audit log: actions and deliveries.", no_args_is_help=True)

app.command("verify")(audit_verify.verify)
app.command("public-keys")(audit_verify.public_keys)

ErrorsOption = Annotated[bool, typer.Option("--errors", help="Only failed, parked and discarded.")]
TABLE = table(
    "entries",
    "at=occurred_at kind status actor target site=source_site_id",
    ("detail", lambda one: one["error_message"] or one["request_summary"] or one["response_summary"]),
    "about=correlation_id",
    empty="No matching entries.",
)


@app.command("list")
@filtered(AUDIT_FILTERS)
def list_(
    filters: dict[str, Any], errors: ErrorsOption = False, limit: LimitOption = 50, cursor: CursorOption = None
) -> None:
    """List audit entries, newest first."""
    found = central().get("audit", limit=limit, cursor=cursor, **_with_errors(filters, errors))
    searched = moment(found["searched_to"])
    show_table(found, replace(TABLE, empty=f"No matching entries after {searched}.") if searched else TABLE)


@app.command()
@filtered(AUDIT_FILTERS)
def export(
    filters: dict[str, Any],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; it appears when the export is complete. Default: stdout."),
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="ndjson (one JSON object per line) or csv.")] = "ndjson",
    errors: ErrorsOption = False,
) -> None:
    """Export all matching audit entries. Needs the role admin; the export itself is audited."""
    wanted = _with_errors(filters, errors)
    with _complete_file(output) as file:
        progress = _Progress(is_shown=sys.stderr.isatty() and output is not None)
        for chunk in central().stream("export", "audit", format=format_, **wanted):
            file.write(chunk)
            progress.add(chunk)
        exported = progress.finish()
    if output is not None:
        print(f"Exported {plural(exported, 'entry')} to {output}.", file=sys.stderr)


def _with_errors(filters: dict[str, Any], errors: bool) -> dict[str, Any]:
    from fieldpost.core.search.audit_filter import ERRORS

    if errors and "status" in filters:
        raise InvalidInput("cli.both", "--errors and --status exclude each other", field="--errors")
    return filters | ({"status": [status.value for status in ERRORS]} if errors else {})


@contextmanager
def _complete_file(output: Path | None) -> Iterator[BinaryIO]:
    """A temporary file that replaces `output` when it is complete; stdout for None."""
    import os
    import tempfile

    if output is None:
        yield sys.stdout.buffer
        return
    try:
        handle, name = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
    except OSError as error:
        raise InvalidInput("cli.file", f"cannot write {output}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(output)
    except OSError as error:
        raise InvalidInput("cli.file", f"cannot write {output}: {error.strerror}") from None
    finally:
        Path(name).unlink(missing_ok=True)


class _Progress:
    """Counts exported lines and checks that the last line, the export's trailer, has arrived."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._lines = 0
        self._end = b""

    def add(self, chunk: bytes) -> None:
        self._lines += chunk.count(b"\n")
        self._end = (self._end + chunk)[-256:]
        if self._is_shown:
            print(f"\r{self._lines:,} lines", end="", file=sys.stderr, flush=True)

    def finish(self) -> int:
        """The number of entries according to the trailer; Unavailable if the trailer is missing."""
        import re

        if self._is_shown:
            print("\r", end="", file=sys.stderr)
        found = re.search(rb'(?:^|\n)(?:# (\d+) entries as of |\{"exported":(\d+),)[^\n]*\n$', self._end)
        if found is None:
            raise Unavailable("export.cut_short", "the connection ended before the export was complete")
        return int(found[1] or found[2])
