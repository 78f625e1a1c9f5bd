"""`fieldpost topics`: the registered kinds of events."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import columns, done, print_json, short, show_fields, show_table, table
from fieldpost.core.errors import InvalidInput

app = typer.Typer(help="Topics: the registered kinds of events.", no_args_is_help=True)

TopicArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the topic.")]


def _state(one: Any) -> str:
    return "archived" if one["archived_at"] else "open"


TOPICS = table(
    "topics",
    "name",
    ("state", _state),
    ("kanaal", lambda one: "yes" if one["is_kanaal"] else ""),
    ("attributes", lambda one: ", ".join(one["attributes"])),
    ("description", short("description", 60)),
    empty="No topics yet. Add one: fieldpost topics save NAME",
)
FIELDS = columns(
    "name",
    ("state", _state),
    "description",
    ("attributes", lambda one: ", ".join(one["attributes"]) or None),
    ("owners", lambda one: ", ".join(one["owners"]) or "(none; administrators may subscribe any owner)"),
    ("kanaal", lambda one: "yes" if one["is_kanaal"] else None),
    ("documentation", lambda one: one["documentation_url"]),
    "version",
)


@app.command("list")
def list_() -> None:
    """List all topics."""
    show_table(central().get("topics"), TOPICS)


@app.command()
def show(name: TopicArgument) -> None:
    """Show a topic with its schema and example."""
    found = central().get("topics", name)
    show_fields(found, FIELDS)
    if is_json():
        return
    for part in ("schema", "example"):
        if found[part] is not None:
            print(f"\n{part.capitalize()}")
            print_json(found[part])


@app.command()
def save(
    name: TopicArgument,
    description: Annotated[str | None, typer.Option(help="What the events are about.")] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(help="Attribute that subscriptions filter by. Repeatable; replaces the present ones."),
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="File with the JSON Schema of the payload.")] = None,
    example: Annotated[Path | None, typer.Option(help="File with an example payload that fits the schema.")] = None,
    owner: Annotated[
        list[str] | None,
        typer.Option(help="Owner that may subscribe, * for all. Repeatable; replaces the present ones."),
    ] = None,
    kanaal: Annotated[
        bool | None,
        typer.Option("--kanaal/--no-kanaal", help="Whether it is a kanaal of the ZGW API.  [default: as it is]"),
    ] = None,
    reopen: Annotated[bool, typer.Option("--reopen", help="Accept events of an archived topic again.")] = False,
) -> None:
    """Add a topic, or change it. Options that are not given leave their value as it is."""
    client = central()
    seen = next((one for one in client.get("topics")["topics"] if one["name"] == name), None)
    body: dict[str, Any] = {"is_archived": bool(seen and seen["archived_at"]) and not reopen}
    for field in ("description", "attributes", "schema", "example", "owners", "version"):
        if seen is not None:
            body[field] = seen[field]
    body["is_kanaal"] = kanaal
    given = {"description": description, "attributes": attribute, "owners": owner}
    body |= {field: value for field, value in given.items() if value is not None}
    for field, path in (("schema", schema), ("example", example)):
        if path is not None:
            body[field] = _read(path)
    saved = client.put("topics", name, body=body)
    done(saved, f"{'Added' if seen is None else 'Changed'} topic {name}.")


@app.command()
def archive(name: TopicArgument) -> None:
    """Archive a topic. Its events stay; new ones are rejected."""
    client = central()
    seen = client.get("topics", name)
    archived = client.post("topics", name, "archive", body={"version": seen["version"]})
    done(archived, f"Archived topic {name}.")


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("cli.file", f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InvalidInput("cli.file", f"{path} is not a JSON file") from None
