"""`fieldpost lists`: who hears of what."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, RetryOption, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, print_json, say, show_fields, show_table
from fieldpost.core.errors import InvalidInput

app = typer.Typer(help="Lists: named sets of targets.", no_args_is_help=True)

ListNameArgument = Annotated[str, typer.Argument(help="The list's name.")]
SITES_HELP = "A site that may send to the list; repeatable. Others' notifications park."


@app.command()
def add(
    name: ListNameArgument,
    target: Annotated[list[str], typer.Option("--target", "-t", help="A target, e.g. a mail address; repeatable.")],
    type_: Annotated[str, typer.Option("--type", help="What kind of targets: the adapter's type.")] = "email",
    channel: Annotated[
        str | None, typer.Option(help="The channel to use; else the default of the type.", show_default=False)
    ] = None,
    park_uncertain: Annotated[
        bool, typer.Option("--park-uncertain", help="Park what may have arrived, instead of sending it again.")
    ] = False,
    retry: RetryOption = None,
    allow_site: Annotated[list[str] | None, typer.Option(help=f"{SITES_HELP}  [default: all may]")] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Add a list."""
    body = {
        "name": name,
        "type": type_,
        "targets": target,
        "channel": channel,
        "park_uncertain": park_uncertain,
        "retry": retry,
        "allowed_sites": allow_site or None,
    }
    added = Client(url, token_file).post("lists", body=body)
    say(added, as_json, f"The list {name} has {_count(added['targets'])}.")


@app.command("list")
def list_(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show all lists."""
    found = Client(url, token_file).get("lists")
    show_table(
        found,
        as_json,
        ("name", "type", "channel", "targets"),
        [(one["name"], one["type"], one["channel"] or "(default)", _brief(one["targets"])) for one in found["lists"]],
        "There is no list yet. Add one: fieldpost lists add NAME --target someone@example.org",
    )


@app.command()
def show(
    name: ListNameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one list with all its targets."""
    found = Client(url, token_file).get("lists", name)
    show_fields(
        found,
        as_json,
        [
            ("name", found["name"]),
            ("type", found["type"]),
            ("channel", found["channel"] or "(default of its type)"),
            ("park uncertain", found["park_uncertain"]),
            ("retry", found["retry"] or "(the channel's)"),
            ("version", found["version"]),
            *(("allowed site", site) for site in found["allowed_sites"] or ["(all)"]),
            *(("target", address) for address in found["targets"]),
        ],
    )


@app.command()
def change(
    name: ListNameArgument,
    add_target: Annotated[list[str] | None, typer.Option(help="A target to add; repeatable.")] = None,
    remove_target: Annotated[list[str] | None, typer.Option(help="A target to take off; repeatable.")] = None,
    channel: Annotated[str | None, typer.Option(help="The channel to use from now on.")] = None,
    default_channel: Annotated[bool, typer.Option("--default-channel", help="Use the default of its type.")] = False,
    park_uncertain: Annotated[
        bool | None, typer.Option("--park-uncertain/--retry-uncertain", help="What to do with what may have arrived.")
    ] = None,
    retry: RetryOption = None,
    inherit_retry: Annotated[bool, typer.Option("--inherit-retry", help="Try again as the channel says.")] = False,
    allow_site: Annotated[list[str] | None, typer.Option(help=f"{SITES_HELP} Takes the place of those before.")] = None,
    allow_all_sites: Annotated[bool, typer.Option("--allow-all-sites", help="Every site may send to it.")] = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Change targets, channel or policy of a list; the rest stays. Its type is fixed."""
    client = Client(url, token_file)
    seen = client.get("lists", name)
    body: dict[str, Any] = {"version": seen["version"]}
    if add_target or remove_target:
        body["targets"] = _changed_targets(seen["targets"], add_target or [], remove_target or [])
    for field, value, is_default in (
        ("channel", channel, default_channel),
        ("retry", retry, inherit_retry),
        ("allowed_sites", allow_site or None, allow_all_sites),
    ):
        if value is not None and is_default:
            raise InvalidInput("cli.both", f"{field} is given and taken back in one command", field=field)
        if value is not None or is_default:
            body[field] = value
    if park_uncertain is not None:
        body["park_uncertain"] = park_uncertain
    if len(body) == 1:
        raise InvalidInput("cli.nothing", "nothing to change was given")
    changed = client.patch("lists", name, body=body)
    say(changed, as_json, f"The list {name} is changed; it has {_count(changed['targets'])}.")


@app.command()
def remove(
    name: ListNameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Remove a list. Notifications that come for it later are parked, naming it."""
    Client(url, token_file).delete("lists", name)
    say({"name": name, "is_removed": True}, as_json, f"The list {name} is removed.")


@app.command("export")
def export(
    format_: Annotated[str, typer.Option("--format", help="csv or json.")] = "json",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file; else to the terminal.")] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
) -> None:
    """Write all lists as a file that `fieldpost lists import` reads."""
    import sys

    content = Client(url, token_file).get_text("export", "lists", format=format_).encode("utf-8")
    if output is None:
        sys.stdout.buffer.write(content)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise InvalidInput("cli.file", f"{output} cannot be written: {error.strerror}") from None


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A file named *.csv or *.json.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would change.")] = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Make lists what a file says: all of it or nothing. Lists that it does not name stay as they are."""
    kinds = {".csv": "text/csv; charset=utf-8", ".json": "application/json"}
    if (kind := kinds.get(file.suffix.lower())) is None:
        raise InvalidInput("cli.file", f"{file.name} is neither .csv nor .json")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidInput("cli.file", f"{file} cannot be read: {error.strerror}") from None
    client = Client(url, token_file)
    found = client.post_file(
        "import", "lists", content=content, content_type=kind, dry_run="true" if dry_run else "false"
    )
    if as_json:
        print_json(found)
        return
    for change in found["changes"]:
        print(f"{'new' if change['is_new'] else 'changed'}: {change['list']}")
        for sign, word in (("+", "added"), ("-", "removed"), ("~", "properties")):
            for one in change[word]:
                print(f"  {sign} {one}")
    done = "would change" if dry_run else "changed"
    print(f"{len(found['changes'])} lists {done}, {found['unchanged']} stay as they are.")


def _changed_targets(present: list[str], added: list[str], removed: list[str]) -> list[str]:
    gone = {address.casefold() for address in removed}
    missing = gone - {address.casefold() for address in present}
    if missing:
        raise InvalidInput("cli.no_target", f"{min(missing)} is no target of the list", field="--remove-target")
    return [*(address for address in present if address.casefold() not in gone), *added]


def _brief(targets: list[str]) -> str:
    return ", ".join(targets[:3]) + (f" and {len(targets) - 3} more" if len(targets) > 3 else "")


def _count(targets: list[str]) -> str:
    return f"{len(targets)} target{'' if len(targets) == 1 else 's'}"
