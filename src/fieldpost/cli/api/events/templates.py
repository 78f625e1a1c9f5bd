"""`fieldpost templates`: text and alarm fields of the notifications that routes make of events."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import columns, done, print_rows, show_fields, show_table, table
from fieldpost.core.errors import InvalidInput
from fieldpost.core.quantities import plural

if TYPE_CHECKING:
    from fieldpost.link.http.client import ApiClient

app = typer.Typer(help="Templates: the text of notifications that routes make of events.", no_args_is_help=True)

TemplateTopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the template.")]
TypeOption = Annotated[
    str, typer.Option("--type", help="List type with its own template; without it the template for all other types.")
]
SubjectOption = Annotated[
    str | None, typer.Option("--subject", help="Subject, for example '{{ payload.service }} is down'.")
]
BodyOption = Annotated[str | None, typer.Option("--body", help="Body.")]
SeverityOption = Annotated[
    str | None, typer.Option("--severity", help="Severity: info, warning, error, critical, or a template for one.")
]
IncidentOption = Annotated[
    str | None, typer.Option("--incident", help="Subject of the alarm, for example '{{ payload.service }}'.")
]
ClearedOption = Annotated[
    str | None, typer.Option("--is-cleared", help="true if the event ends the incident, or a template for true.")
]
BodyFileOption = Annotated[Path | None, typer.Option("--body-file", help="File with the body.")]


def _type(one: Any) -> str:
    return one["type"] or "(any)"


TABLE = table(
    "templates",
    "topic",
    ("type", _type),
    "version subject saved=created_at by=created_by",
    empty="No templates. Add one: fieldpost templates save TOPIC --subject … --body-file …",
)
WAITING = columns("topic type events=count oldest")
VERSIONS = table("versions", "version is_current subject saved=created_at by=created_by", empty="No versions.")


@app.command("list")
def list_() -> None:
    """List the current templates, and the events that wait for one."""
    found = central().get("templates")
    show_table(found, TABLE)
    if found["waiting"] and not is_json():
        print("\nEvents that wait for a template")
        print_rows(WAITING, found["waiting"])


@app.command()
def show(
    topic: TemplateTopicArgument,
    type_: TypeOption = "",
    version: Annotated[int | None, typer.Option(help="Version; the newest unless given.")] = None,
) -> None:
    """Show the parts of a template."""
    versions = central().get("templates", topic, type=type_ or None)["versions"]
    found = next((one for one in versions if version in (None, one["version"])), None)
    if found is None:
        raise InvalidInput("cli.version", f"topic {topic!r} has no template of version {version}", field="--version")
    show_fields(found, columns("topic", ("type", _type), "version is_current subject severity incident is_cleared"))
    if not is_json():
        print(f"\n{found['body']}")


@app.command()
def versions(topic: TemplateTopicArgument, type_: TypeOption = "") -> None:
    """List the versions of a template, newest first."""
    show_table(central().get("templates", topic, type=type_ or None), VERSIONS)


@app.command()
def save(
    topic: TemplateTopicArgument,
    type_: TypeOption = "",
    subject: SubjectOption = None,
    body: BodyOption = None,
    body_file: BodyFileOption = None,
    severity: SeverityOption = None,
    incident: IncidentOption = None,
    is_cleared: ClearedOption = None,
) -> None:
    """Save a new version of a template. Parts that are not given stay as they are."""
    client, text = central(), _body(body, body_file)
    seen = _current(client, topic, type_)
    if not seen and (subject is None or text is None):
        raise InvalidInput("cli.template", "a new template needs --subject, and --body or --body-file")
    given = _parts(seen, subject=subject, body=text, severity=severity, incident=incident, is_cleared=is_cleared)
    saved = client.put("templates", topic, body={**given, "version": seen.get("version"), "type": type_})
    done(saved, f"Saved version {saved['template']['version']} of the template of {topic}.")
    if saved["waiting"] and not is_json():
        print(f"{plural(saved['waiting'], 'event')} waited for it; their notifications are on the way.")


@app.command()
def preview(
    topic: TemplateTopicArgument,
    type_: TypeOption = "",
    subject: SubjectOption = None,
    body: BodyOption = None,
    body_file: BodyFileOption = None,
    severity: SeverityOption = None,
    incident: IncidentOption = None,
    is_cleared: ClearedOption = None,
    event: Annotated[str | None, typer.Option("--event", help="Past event; the topic's example unless given.")] = None,
) -> None:
    """Render a template without saving it. Parts that are not given are those of the current version."""
    client, text = central(), _body(body, body_file)
    seen = _current(client, topic, type_)
    given = _parts(seen, subject=subject, body=text, severity=severity, incident=incident, is_cleared=is_cleared)
    shown = client.post("templates", "preview", body={**given, "topic": topic, "type": type_, "event_id": event})
    if is_json():
        show_fields(shown, {})
    elif shown["error"]:
        raise InvalidInput("template.invalid", shown["error"])
    else:
        lines = [f"Subject: {shown['subject']}"]
        lines += [f"Severity: {shown['severity']}"] if shown["severity"] else []
        lines += [f"Incident: {shown['incident']}"] if shown["incident"] else []
        lines += ["The incident is over."] if shown["is_cleared"] else []
        lines += [f"Cost for {cost}" for cost in shown["costs"]]
        print("\n".join([*lines, "", shown["body"]]))


@app.command()
def remove(topic: TemplateTopicArgument, type_: TypeOption = "") -> None:
    """End the use of a template. Events that need it wait; its versions stay for history."""
    client = central()
    versions = client.get("templates", topic, type=type_ or None)["versions"]
    client.post("templates", topic, "remove", body={"version": versions[0]["version"], "type": type_})
    done({}, f"Removed the template of {topic}.")


def _current(client: "ApiClient", topic: str, type_: str) -> dict[str, Any]:
    """The current version of a template; empty if there is none."""
    found = client.get("templates")["templates"]
    return next((one for one in found if (one["topic"], one["type"]) == (topic, type_)), {})


def _parts(current: Mapping[str, Any], **given: str | None) -> dict[str, str]:
    """The given parts of a template, the others as they are."""
    return {name: value if value is not None else current.get(name, "") for name, value in given.items()}


def _body(body: str | None, file: Path | None) -> str | None:
    if body is not None and file is not None:
        raise InvalidInput("cli.template", "give --body or --body-file, not both")
    try:
        return file.read_text(encoding="utf-8") if file is not None else body
    except OSError as error:
        raise InvalidInput("cli.file", f"cannot read {file}: {error.strerror}") from None
    except ValueError:
        raise InvalidInput("cli.file", f"{file} is not UTF-8") from None
