"""`fieldpost audit`: who did what, and what became of it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, show_table
from fieldpost.core.errors import InvalidInput, Unavailable

app = typer.Typer(help="The audit log: who did what, and what became of it.", no_args_is_help=True)

AuditFromOption = Annotated[
    str | None,
    typer.Option("--from", help="What happened then or later, e.g. 2026-11-15T08:00:00Z.", show_default=False),
]
AuditToOption = Annotated[str | None, typer.Option("--to", help="What happened before.", show_default=False)]
KindOption = Annotated[
    list[str] | None,
    typer.Option(help="Only these: operator_action, notify_send, notify_deliver, …; repeatable.", show_default=False),
]
AuditStatusOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Only these: submitted, attempted, delivered, failed, parked, discarded, …; repeatable.",
        show_default=False,
    ),
]
ErrorsOption = Annotated[bool, typer.Option("--errors", help="Only what failed, was parked or discarded.")]
ChannelOption = Annotated[
    str | None,
    typer.Option(help="notification, api_inbound, api_outbound or db_outbound.", show_default=False),
]
ActorOption = Annotated[str | None, typer.Option(help="Only acts of this user or program.", show_default=False)]
TargetOption = Annotated[
    str | None, typer.Option(help="Only acts on this list, channel, site or user.", show_default=False)
]
AuditSiteOption = Annotated[str | None, typer.Option(help="Only what came from this site.", show_default=False)]
AboutOption = Annotated[
    str | None,
    typer.Option(help="Only about this notification, cached call or bulk action.", metavar="ID", show_default=False),
]


@app.command("list")
def list_(
    since: AuditFromOption = None,
    until: AuditToOption = None,
    kind: KindOption = None,
    status: AuditStatusOption = None,
    errors: ErrorsOption = False,
    channel: ChannelOption = None,
    actor: ActorOption = None,
    target: TargetOption = None,
    site: AuditSiteOption = None,
    about: AboutOption = None,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where a list ended.", show_default=False)] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show entries of the audit log, newest first."""
    asked = _filter(since, until, kind, status, errors, channel, actor, target, site, about)
    found = Client(url, token_file).get("audit", limit=limit, cursor=cursor, **asked)
    show_table(
        found,
        as_json,
        ("at", "kind", "status", "actor", "target", "site", "what", "about"),
        [
            (
                moment(one["occurred_at"]),
                one["kind"],
                one["status"],
                one["actor"],
                one["target"],
                one["source_site_id"],
                one["error_message"] or one["request_summary"] or one["response_summary"],
                one["correlation_id"],
            )
            for one in found["entries"]
        ],
        "There is no such entry" + (f" after {moment(found['searched_to'])}." if found["searched_to"] else "."),
        more=found["next_cursor"],
    )


@app.command()
def export(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; it appears when it is whole. Else to the terminal.")
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="ndjson (one JSON object a line) or csv.")] = "ndjson",
    since: AuditFromOption = None,
    until: AuditToOption = None,
    kind: KindOption = None,
    status: AuditStatusOption = None,
    errors: ErrorsOption = False,
    channel: ChannelOption = None,
    actor: ActorOption = None,
    target: TargetOption = None,
    site: AuditSiteOption = None,
    about: AboutOption = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
) -> None:
    """Write all entries that fit as a file, however many they are. Needs the role admin, and is audited."""
    asked = _filter(since, until, kind, status, errors, channel, actor, target, site, about)
    with _written(output) as file:
        progress = _Progress(is_shown=sys.stderr.isatty() and output is not None)
        for piece in Client(url, token_file).pieces("export", "audit", format=format_, **asked):
            file.write(piece)
            progress.note(piece)
        exported = progress.finish()
    if output is not None:
        print(f"{output}: {exported} entries.", file=sys.stderr)


def _filter(
    since: str | None,
    until: str | None,
    kind: list[str] | None,
    status: list[str] | None,
    errors: bool,
    channel: str | None,
    actor: str | None,
    target: str | None,
    site: str | None,
    about: str | None,
) -> dict[str, Any]:
    from fieldpost.core.search.audit_filter import ERRORS

    if errors and status:
        raise InvalidInput("cli.both", "--errors and --status cannot be given together", field="--errors")
    return {
        "from": since,
        "to": until,
        "kind": kind or None,
        "status": [status.value for status in ERRORS] if errors else status or None,
        "channel": channel,
        "actor": actor,
        "target": target,
        "site": site,
        "about": about,
    }


@contextmanager
def _written(output: Path | None) -> Iterator[BinaryIO]:
    """A file that takes its name when it is whole; what stood there before stays until then."""
    import os
    import tempfile

    if output is None:
        yield sys.stdout.buffer
        return
    try:
        handle, name = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
    except OSError as error:
        raise InvalidInput("cli.file", f"{output} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(output)
    except OSError as error:
        raise InvalidInput("cli.file", f"{output} cannot be written: {error.strerror}") from None
    finally:
        Path(name).unlink(missing_ok=True)


class _Progress:
    """Tells how many lines have come, and knows whether the last one has."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._lines = 0
        self._end = b""

    def note(self, piece: bytes) -> None:
        self._lines += piece.count(b"\n")
        self._end = (self._end + piece)[-256:]
        if self._is_shown:
            print(f"\r{self._lines:,} lines", end="", file=sys.stderr, flush=True)

    def finish(self) -> int:
        """How many entries were exported; Unavailable when what came does not end as an export does."""
        import re

        if self._is_shown:
            print("\r", end="", file=sys.stderr)
        found = re.search(rb'(?:^|\n)(?:# (\d+) entries as of |\{"exported":(\d+),)[^\n]*\n$', self._end)
        if found is None:
            raise Unavailable("export.cut_short", "central ended the export before its last line")
        return int(found[1] or found[2])
