"""`fieldpost send`, `call`, `write`, `status`: the script API for shells. They work without a running agent."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldpost.cli.local.site_buffer import SiteFolderOption
from fieldpost.cli.options import is_json
from fieldpost.cli.output import done, print_json

if TYPE_CHECKING:
    from fieldpost.core.sites.message import CallRecord
    from fieldpost.site.notify import NotificationStatus
    from fieldpost.site.site import Site

InstanceOption = Annotated[str | None, typer.Option(help="Machine or unit the message is about.")]
ScriptOption = Annotated[str | None, typer.Option(help="Name of the sending script.")]
ExecutionOption = Annotated[str | None, typer.Option("--execution-id", help="Id of the script's run.")]
ParentOption = Annotated[str | None, typer.Option("--parent-execution-id", help="Id of the run that started this run.")]
KeyOption = Annotated[
    str | None, typer.Option(help="Idempotency key: repeated calls with the same content have one effect.")
]
ENDED = ("delivered", "parked", "discarded", "failed", "rejected", "unknown")
"""Statuses that change only by an operator's action."""


def send(
    to: Annotated[str, typer.Option("--to", help="List to notify.")],
    subject: Annotated[str, typer.Option("--subject", "-s", help="Subject, one line.")],
    body: Annotated[str, typer.Argument(help="Text; - reads it from stdin.")] = "",
    folder: SiteFolderOption = Path(),
    instance: InstanceOption = None,
    script: ScriptOption = None,
    execution_id: ExecutionOption = None,
    parent_execution_id: ParentOption = None,
    key: KeyOption = None,
    severity: Annotated[
        str | None, typer.Option(help="info, warning, error or critical.  [default: of the list]")
    ] = None,
    incident: Annotated[
        str | None, typer.Option(help="Subject of the alarm; the same text when it is raised and cleared.")
    ] = None,
    cleared: Annotated[bool, typer.Option("--cleared", help="Report that the incident is over.")] = False,
) -> None:
    """Send a notification from this site and print its id. It is stored on disk; the agent forwards it."""
    from fieldpost.core.text import BODY_BYTES_MAX
    from fieldpost.site.site import Site

    given = _provenance(instance, script, execution_id, parent_execution_id)
    with Site.open(folder) as site, site.context(**given):
        text = _read_stdin(BODY_BYTES_MAX) if body == "-" else body
        notification_id = site.notify.to(to).send(
            subject, text, key=key, severity=severity, incident=incident, is_cleared=cleared
        )
    done({"notification_id": notification_id}, notification_id)


def call(
    system: Annotated[str, typer.Argument(help="External system, as defined in site.toml.")],
    method: Annotated[str, typer.Argument(help="GET, POST, PUT, PATCH or DELETE.")],
    path: Annotated[str, typer.Argument(help="Path below the system's URL, starting with /.")],
    body_json: Annotated[str | None, typer.Option(help="JSON body; - reads it from stdin.")] = None,
    body: Annotated[str | None, typer.Option(help="Text body; - reads it from stdin.")] = None,
    query: Annotated[list[str] | None, typer.Option(help="NAME=VALUE. Repeatable.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="NAME=VALUE. Repeatable.")] = None,
    folder: SiteFolderOption = Path(),
    instance: InstanceOption = None,
    script: ScriptOption = None,
    execution_id: ExecutionOption = None,
    parent_execution_id: ParentOption = None,
    key: KeyOption = None,
) -> None:
    """Call an external system and print the call's id.

    The call is stored on disk first; if it fails, the agent retries it. The exit code is 10 if the system refused it
    permanently; the id is printed then, too.
    """
    from fieldpost.site.carriers.call_arguments import CALL_BODY_BYTES_MAX
    from fieldpost.site.site import Site

    given = _provenance(instance, script, execution_id, parent_execution_id)
    with Site.open(folder) as site, site.context(**given), _print_refused(site):
        text = _read_stdin(CALL_BODY_BYTES_MAX) if body == "-" else body
        given_json = _read_stdin(CALL_BODY_BYTES_MAX, "body_json") if body_json == "-" else body_json
        call_id = site.external(system).call(
            method,
            path,
            query=_many(query, "query"),
            headers=_pairs(header, "header"),
            json=None if given_json is None else _parse_json(given_json, "body_json"),
            body=text,
            key=key,
        )
        _print_call(site, call_id)


def write(
    connection: Annotated[str, typer.Argument(help="Database connection, as defined in site.toml.")],
    statement: Annotated[str, typer.Argument(help="Name of a statement of that connection.")],
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="Parameter as NAME=TEXT. Repeatable.")
    ] = None,
    parameters: Annotated[
        str | None, typer.Option(help="All parameters as a JSON object; - reads it from stdin.")
    ] = None,
    folder: SiteFolderOption = Path(),
    instance: InstanceOption = None,
    script: ScriptOption = None,
    execution_id: ExecutionOption = None,
    parent_execution_id: ParentOption = None,
    key: KeyOption = None,
) -> None:
    """Write through a database connection and print the call's id.

    The write is stored on disk first; if it fails, the agent retries it. The exit code is 10 if the database refused it
    permanently; the id is printed then, too.
    """
    from fieldpost.core.errors import InvalidInput
    from fieldpost.site.carriers.write_arguments import PARAMETERS_BYTES_MAX
    from fieldpost.site.site import Site

    given = _provenance(instance, script, execution_id, parent_execution_id)
    with Site.open(folder) as site, site.context(**given), _print_refused(site):
        given_json = _read_stdin(PARAMETERS_BYTES_MAX, "parameters") if parameters == "-" else parameters
        values = {} if given_json is None else _parse_json(given_json, "parameters")
        if not isinstance(values, dict):
            raise InvalidInput("parameters.type", "parameters must be a JSON object", field="parameters")
        single = _pairs(parameter, "parameter") or {}
        for name in sorted(single.keys() & values.keys()):
            raise InvalidInput("cli.pair", f"--parameter {name[:64]} is also in --parameters", field="parameter")
        call_id = site.database(connection).write(statement, values | single, key=key)
        _print_call(site, call_id)


def status(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Id that send, call or write printed.")],
    folder: SiteFolderOption = Path(),
    watch: Annotated[bool, typer.Option("--watch", help="Wait for the final status.")] = False,
    interval_s: Annotated[float, typer.Option(min=0.1, help="With --watch: seconds between checks.")] = 1.0,
) -> None:
    """Show the status of a notification, call or write of this site."""
    from fieldpost.site.site import Site

    with Site.open(folder) as site:
        if watch:
            _watch(lambda: _read(site, message_id), interval_s)
        else:
            print(_line(_read(site, message_id)))


def _read(site: "Site", message_id: str) -> "CallRecord | NotificationStatus":
    from fieldpost.core.ids import is_id

    record = site.tracking.find(message_id) if is_id(message_id) else None
    return site.notify.status(message_id) if record is None else record


def _watch(read: "Callable[[], CallRecord | NotificationStatus]", interval_s: float) -> None:
    """Print each change once. While central is unreachable, report that and keep waiting."""
    from fieldpost.clock import SystemClock
    from fieldpost.core.errors import Unavailable

    clock = SystemClock()
    before = None
    while True:
        try:
            found = read()
            line = _line(found)
            if line != before:
                print(line, flush=True)
            before = line
            if found.status in ENDED:
                return
        except Unavailable as error:
            if str(error) != before:
                print(f"fieldpost: {error} [{error.code}]", file=sys.stderr, flush=True)
            before = str(error)
        clock.pause(interval_s)


def _line(answer: "CallRecord | NotificationStatus") -> str:
    return json.dumps(record_of(answer)) if is_json() else _sentence(answer)


@contextmanager
def _print_refused(site: "Site") -> Iterator[None]:
    """Print the record of a permanently refused call, so that a shell script can find it."""
    from fieldpost.core.errors import OperationFailed

    try:
        yield
    except OperationFailed as refused:
        if refused.call_id is not None:
            _print_call(site, refused.call_id)
        raise


def _provenance(*labels: str | None) -> dict[str, str | None]:
    return dict(zip(("instance", "script", "execution_id", "parent_execution_id"), labels, strict=True))


def _print_call(site: "Site", call_id: str) -> None:
    if is_json():
        print_json(record_of(site.tracking.status(call_id)))
    else:
        print(call_id)


def record_of(answer: object) -> dict[str, Any]:
    """The fields of a record, with times as text."""
    from dataclasses import fields

    from fieldpost.core.times import to_text

    values = {field.name: getattr(answer, field.name) for field in fields(answer)}  # type: ignore[arg-type]
    return {name: to_text(value) if hasattr(value, "isoformat") else value for name, value in values.items()}


def _sentence(answer: Any) -> str:
    from fieldpost.core.times import to_text

    parts: list[str] = [str(answer.status)]
    ended = getattr(answer, "delivered_at", None) or getattr(answer, "terminal_at", None)
    if ended is not None:
        parts.append(f"at {to_text(ended)}")
    if answer.retry_count:
        parts.append(f"after {answer.retry_count} failed {'attempt' if answer.retry_count == 1 else 'attempts'}")
    if getattr(answer, "next_attempt_at", None) is not None:
        parts.append(f"next attempt at {to_text(answer.next_attempt_at)}")
    line = ", ".join(parts)
    return f"{line}: {answer.last_error}" if answer.last_error else line


def _parse_json(text: str, field: str) -> Any:
    from fieldpost.core.errors import InvalidInput
    from fieldpost.link.codec import check_json

    try:
        content = text.encode()
        check_json(content)
        return json.loads(content)
    except InvalidInput as error:
        raise InvalidInput(error.code, f"{field}: {error.message}", field=field) from None
    except UnicodeEncodeError:
        raise InvalidInput("text.not_utf8", f"{field} is not UTF-8", field=field) from None


def _many(given: list[str] | None, field: str) -> dict[str, object] | None:
    """Names and values; a repeated name has a list of values."""
    found: dict[str, Any] = {}
    for name, value in _split(given, field):
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()} or None


def _pairs(given: list[str] | None, field: str) -> dict[str, str] | None:
    return dict(_split(given, field)) or None


def _split(given: list[str] | None, field: str) -> list[tuple[str, str]]:
    from fieldpost.core.errors import InvalidInput

    pairs: list[tuple[str, str]] = []
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise InvalidInput("cli.pair", f"--{field} must be NAME=VALUE, got {text[:64]!r}", field=field)
        if name in dict(pairs) and field != "query":
            raise InvalidInput("cli.pair", f"--{field} {name[:64]} is given twice", field=field)
        pairs.append((name, value))
    return pairs


def _read_stdin(bytes_max: int, field: str = "body") -> str:
    from fieldpost.core.errors import InvalidInput

    # One byte beyond the limit is enough for the check that follows.
    data = sys.stdin.buffer.read(bytes_max + 1)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(data) > bytes_max and error.start > bytes_max - 4:
            return data.decode("utf-8", "replace")
        raise InvalidInput("text.not_utf8", f"{field} is not UTF-8 at byte {error.start}", field=field) from None
