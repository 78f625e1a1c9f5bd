"""`fieldpost send`, `call`, `write`, `status`: the script API for shells, on this machine's site. No agent needed."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldpost.cli.local.site_buffer import SiteFolderOption
from fieldpost.cli.output import JsonOption, print_json, say

if TYPE_CHECKING:
    from fieldpost.core.sites.message import CallRecord
    from fieldpost.site.notify import NotificationStatus
    from fieldpost.site.site import Site

InstanceOption = Annotated[str | None, typer.Option(help="Which machine or unit it is about.")]
ScriptOption = Annotated[str | None, typer.Option(help="Which script it comes from.")]
ExecutionOption = Annotated[str | None, typer.Option("--execution-id", help="The run of that script.")]
ParentOption = Annotated[str | None, typer.Option("--parent-execution-id", help="The run that started this run.")]
KeyOption = Annotated[
    str | None, typer.Option(help="Your own name for it: given again with the same content, it is the same one.")
]
ENDED = ("delivered", "parked", "discarded", "failed", "rejected", "unknown")
"""Where nothing more happens by itself."""


def send(
    to: Annotated[str, typer.Option("--to", help="The list to notify.")],
    subject: Annotated[str, typer.Option("--subject", "-s", help="One line.")],
    body: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")] = "",
    folder: SiteFolderOption = Path(),
    instance: InstanceOption = None,
    script: ScriptOption = None,
    execution_id: ExecutionOption = None,
    parent_execution_id: ParentOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a notification from this site and print its id. It is on disk when this ends; the agent forwards it."""
    from fieldpost.core.text import BODY_BYTES_MAX
    from fieldpost.site.site import Site

    given = _provenance(instance, script, execution_id, parent_execution_id)
    with Site.open(folder) as site, site.context(**given):
        text = _read_stdin(BODY_BYTES_MAX) if body == "-" else body
        notification_id = site.notify.to(to).send(subject, text, key=key)
    say({"notification_id": notification_id}, as_json, notification_id)


def call(
    system: Annotated[str, typer.Argument(help="The external system, as site.toml defines it.")],
    method: Annotated[str, typer.Argument(help="GET, POST, PUT, PATCH or DELETE.")],
    path: Annotated[str, typer.Argument(help="Below the system's URL, beginning with /.")],
    body_json: Annotated[str | None, typer.Option(help="JSON to send; - reads it from standard input.")] = None,
    body: Annotated[str | None, typer.Option(help="Text to send; - reads it from standard input.")] = None,
    query: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; may be given often.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; may be given often.")] = None,
    folder: SiteFolderOption = Path(),
    instance: InstanceOption = None,
    script: ScriptOption = None,
    execution_id: ExecutionOption = None,
    parent_execution_id: ParentOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call an external system and print the operation's id. It is on disk first; what cannot be done now the agent
    tries again. The exit code is 10 when the system refused it for good; the id is printed then too."""
    from fieldpost.site.buffer.payloads import CALL_BODY_BYTES_MAX
    from fieldpost.site.site import Site

    given = _provenance(instance, script, execution_id, parent_execution_id)
    with Site.open(folder) as site, site.context(**given), _told_also_if_refused(site, as_json):
        text = _read_stdin(CALL_BODY_BYTES_MAX) if body == "-" else body
        told = _read_stdin(CALL_BODY_BYTES_MAX, "body_json") if body_json == "-" else body_json
        call_id = site.external(system).call(
            method,
            path,
            query=_many(query, "query"),
            headers=_pairs(header, "header"),
            json=None if told is None else _parse_json(told, "body_json"),
            body=text,
            key=key,
        )
        _print_operation(site, call_id, as_json)


def write(
    connection: Annotated[str, typer.Argument(help="The database connection, as site.toml defines it.")],
    statement: Annotated[str, typer.Argument(help="A statement of that connection, by its name.")],
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="NAME=TEXT; may be given often.")
    ] = None,
    parameters: Annotated[str | None, typer.Option(help="All as one JSON object; - reads standard input.")] = None,
    folder: SiteFolderOption = Path(),
    instance: InstanceOption = None,
    script: ScriptOption = None,
    execution_id: ExecutionOption = None,
    parent_execution_id: ParentOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write through a database connection and print the operation's id. It is on disk first; what cannot be done now
    the agent tries again. The exit code is 10 when the database refused it for good; the id is printed then too."""
    from fieldpost.core.errors import InvalidInput
    from fieldpost.site.buffer.payloads import PARAMETERS_BYTES_MAX
    from fieldpost.site.site import Site

    given = _provenance(instance, script, execution_id, parent_execution_id)
    with Site.open(folder) as site, site.context(**given), _told_also_if_refused(site, as_json):
        told = _read_stdin(PARAMETERS_BYTES_MAX, "parameters") if parameters == "-" else parameters
        values = {} if told is None else _parse_json(told, "parameters")
        if not isinstance(values, dict):
            raise InvalidInput("parameters.type", "parameters must be a JSON object", field="parameters")
        single = _pairs(parameter, "parameter") or {}
        for name in sorted(single.keys() & values.keys()):
            raise InvalidInput("cli.pair", f"--parameter {name[:64]} is in --parameters too", field="parameter")
        call_id = site.database(connection).write(statement, values | single, key=key)
        _print_operation(site, call_id, as_json)


def status(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The id that send, call or write printed.")],
    folder: SiteFolderOption = Path(),
    as_json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again until nothing more happens by itself.")] = False,
    interval_s: Annotated[float, typer.Option(min=0.1, help="With --watch: how often to look.")] = 1.0,
) -> None:
    """Say where a notification, call or write of this site stands."""
    from fieldpost.site.site import Site

    with Site.open(folder) as site:
        if watch:
            _watch(lambda: _look(site, message_id), as_json, interval_s)
        else:
            _print(_look(site, message_id), as_json)


def _look(site: "Site", message_id: str) -> "CallRecord | NotificationStatus":
    from fieldpost.core.ids import is_id

    record = site.tracking.find(message_id) if is_id(message_id) else None
    return site.notify.status(message_id) if record is None else record


def _watch(look: "Callable[[], CallRecord | NotificationStatus]", as_json: bool, interval_s: float) -> None:
    """Tell each change once. Central out of reach is told and waited for: that is why one watches."""
    from fieldpost.clock import SystemClock
    from fieldpost.core.errors import Unavailable

    clock = SystemClock()
    before = None
    while True:
        try:
            found = look()
            line = _line(found, as_json)
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


def _print(answer: "CallRecord | NotificationStatus", as_json: bool) -> None:
    print(_line(answer, as_json))


def _line(answer: "CallRecord | NotificationStatus", as_json: bool) -> str:
    return json.dumps(record_of(answer)) if as_json else _sentence(answer)


@contextmanager
def _told_also_if_refused(site: "Site", as_json: bool) -> Iterator[None]:
    """A call that was refused for good has a record too, by which a shell can find it again."""
    from fieldpost.core.errors import OperationFailed

    try:
        yield
    except OperationFailed as refused:
        if refused.call_id is not None:
            _print_operation(site, refused.call_id, as_json)
        raise


def _provenance(*labels: str | None) -> dict[str, str | None]:
    return dict(zip(("instance", "script", "execution_id", "parent_execution_id"), labels, strict=True))


def _print_operation(site: "Site", call_id: str, as_json: bool) -> None:
    if as_json:
        print_json(record_of(site.tracking.status(call_id)))
    else:
        print(call_id)


def record_of(answer: object) -> dict[str, Any]:
    """Every field of a record, with times as text."""
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
        parts.append(f"after {answer.retry_count} failed {'try' if answer.retry_count == 1 else 'tries'}")
    if getattr(answer, "next_attempt_at", None) is not None:
        parts.append(f"next try at {to_text(answer.next_attempt_at)}")
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
    """Names with their values; a name that is given often has a list of them."""
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
            raise InvalidInput("cli.pair", f"--{field} must be NAME=VALUE, not {text[:64]!r}", field=field)
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
