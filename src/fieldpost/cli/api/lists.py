"""`fieldpost lists`: lists of targets."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fieldpost.cli.api.channels import read_secrets
from fieldpost.cli.arguments import DefaultRateOption, RateOption, RetryPolicyOption
from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import done, print_json, show_fields, show_table, table
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import LISTS_TYPE
from fieldpost.core.quantities import plural

app = typer.Typer(help="Lists: named sets of targets.", no_args_is_help=True)

ListNameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the list.")]
TargetSecretOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", help="Target with a secret, such as a hook URL; its value is read from the terminal or a pipe."
    ),
]
TargetSecretFileOption = Annotated[
    list[str] | None, typer.Option("--secret-file", help="Secret of a target from a file, as target=file. Repeatable.")
]
SEVERITY_HELP = "Severity of notifications that have none: info, warning, error or critical."
SITES_HELP = "Site that may send to the list; notifications from others are parked. Repeatable."


def _brief(found: Mapping[str, Any]) -> str:
    """The first targets, or their number for a viewer, who does not see them."""
    targets = found["targets"]
    if targets is None:
        return str(found["target_count"])
    return ", ".join(targets[:3]) + (f" and {len(targets) - 3} more" if len(targets) > 3 else "")


def _of_path(found: Mapping[str, Any], name: str, default: str) -> str:
    """A property of the list's own path; a list of lists has no path."""
    return str(found[name] or ("(of each list)" if found["type"] == LISTS_TYPE else default))


LISTS = table(
    "lists",
    "name type",
    ("channel", lambda one: _of_path(one, "channel", "(default)")),
    ("targets", _brief),
    empty="No lists yet. Add one: fieldpost lists add NAME --target someone@example.org",
)


@app.command()
def add(
    name: ListNameArgument,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            help="Target, e.g. a mail address. Repeatable; none for routes that take the address of an event.",
        ),
    ] = None,
    type_: Annotated[str, typer.Option("--type", help="Type of the targets.")] = "email",
    channel: Annotated[str | None, typer.Option(help="Channel to use.  [default: the default of the type]")] = None,
    park_uncertain: Annotated[
        bool, typer.Option("--park-uncertain", help="Park notifications that may have arrived instead of resending.")
    ] = False,
    retry: RetryPolicyOption = None,
    allow_site: Annotated[list[str] | None, typer.Option(help=f"{SITES_HELP}  [default: all sites]")] = None,
    severity: Annotated[str | None, typer.Option(help=f"{SEVERITY_HELP}  [default: none]")] = None,
    rate: RateOption = None,
    secret: TargetSecretOption = None,
    secret_file: TargetSecretFileOption = None,
) -> None:
    """Add a list."""
    body = {
        "name": name,
        "type": type_,
        "targets": target or [],
        "channel": channel,
        "park_uncertain": park_uncertain,
        "retry": retry,
        "allowed_sites": allow_site or None,
        "severity": severity,
        "rate": rate,
        "secrets": read_secrets(secret or [], secret_file or []),
    }
    added = central().post("lists", body=body)
    done(added, f"Added list {name} with {plural(len(added['targets']), 'target')}.")


@app.command("list")
def list_() -> None:
    """List all lists."""
    show_table(central().get("lists"), LISTS)


@app.command()
def show(name: ListNameArgument) -> None:
    """Show a list with all its targets."""
    found = central().get("lists", name)
    show_fields(
        found,
        {
            "name": "name",
            "type": "type",
            "channel": lambda one: _of_path(one, "channel", "(default of the type)"),
            "park uncertain": "park_uncertain",
            "retry": lambda one: _of_path(one, "retry", "(as the channel)"),
            "severity": lambda one: _of_path(one, "severity", "(none)"),
            "rate": lambda one: _of_path(one, "rate", "(default of the type)"),
            "version": "version",
        },
        *(("allowed site", site) for site in found["allowed_sites"] or ["(all)"]),
        *(("target", address) for address in found["targets"] or [f"({found['target_count']}, shown to operators)"]),
    )


@app.command()
def change(
    name: ListNameArgument,
    add_target: Annotated[list[str] | None, typer.Option(help="Target to add. Repeatable.")] = None,
    remove_target: Annotated[list[str] | None, typer.Option(help="Target to remove. Repeatable.")] = None,
    channel: Annotated[str | None, typer.Option(help="Channel to use.")] = None,
    default_channel: Annotated[
        bool, typer.Option("--default-channel", help="Use the default channel of the type.")
    ] = False,
    park_uncertain: Annotated[
        bool | None,
        typer.Option("--park-uncertain/--retry-uncertain", help="Park or resend notifications that may have arrived."),
    ] = None,
    retry: RetryPolicyOption = None,
    inherit_retry: Annotated[bool, typer.Option("--inherit-retry", help="Use the channel's retry policy.")] = False,
    allow_site: Annotated[list[str] | None, typer.Option(help=f"{SITES_HELP} Replaces the present sites.")] = None,
    allow_all_sites: Annotated[bool, typer.Option("--allow-all-sites", help="Allow every site.")] = False,
    severity: Annotated[str | None, typer.Option(help=SEVERITY_HELP)] = None,
    no_severity: Annotated[bool, typer.Option("--no-severity", help="Give notifications no severity.")] = False,
    rate: RateOption = None,
    default_rate: DefaultRateOption = False,
    secret: TargetSecretOption = None,
    secret_file: TargetSecretFileOption = None,
    clear_secret: Annotated[list[str] | None, typer.Option(help="Target whose secret to remove. Repeatable.")] = None,
) -> None:
    """Change the targets, channel or policy of a list. The type cannot be changed."""
    client = central()
    seen = client.get("lists", name)
    body: dict[str, Any] = {"version": seen["version"]}
    if add_target or remove_target:
        body["targets"] = _changed_targets(seen["targets"], add_target or [], remove_target or [])
    for field, value, is_default in (
        ("channel", channel, default_channel),
        ("retry", retry, inherit_retry),
        ("allowed_sites", allow_site or None, allow_all_sites),
        ("severity", severity, no_severity),
        ("rate", rate, default_rate),
    ):
        if value is not None and is_default:
            raise InvalidInput("cli.both", f"{field} is both set and reset", field=field)
        if value is not None or is_default:
            body[field] = value
    if park_uncertain is not None:
        body["park_uncertain"] = park_uncertain
    if secrets := {**read_secrets(secret or [], secret_file or []), **dict.fromkeys(clear_secret or [])}:
        body["secrets"] = secrets
    if len(body) == 1:
        raise InvalidInput("cli.nothing", "nothing to change: give at least one option")
    changed = client.patch("lists", name, body=body)
    done(changed, f"Changed list {name}; it has {plural(len(changed['targets']), 'target')}.")


@app.command()
def remove(name: ListNameArgument) -> None:
    """Remove a list. Later notifications to it are parked."""
    central().delete("lists", name)
    done({"name": name, "is_removed": True}, f"Removed list {name}.")


@app.command("export")
def export(
    format_: Annotated[str, typer.Option("--format", help="csv or json.")] = "json",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write. Default: stdout.")] = None,
) -> None:
    """Export all lists in the format that `fieldpost lists import` reads."""
    content = central().get_file("export", "lists", format=format_)
    if output is None:
        sys.stdout.buffer.write(content)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise InvalidInput("cli.file", f"cannot write {output}: {error.strerror}") from None


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="File to import, *.csv or *.json.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")] = False,
) -> None:
    """Create and change lists from a file, in one transaction. Lists that are not in the file stay unchanged."""
    content_types = {".csv": "text/csv; charset=utf-8", ".json": "application/json"}
    if (content_type := content_types.get(file.suffix.lower())) is None:
        raise InvalidInput("cli.file", f"file name must end in .csv or .json, got {file.name}")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidInput("cli.file", f"cannot read {file}: {error.strerror}") from None
    found = central().post_file(
        "import", "lists", content=content, content_type=content_type, dry_run="true" if dry_run else "false"
    )
    if is_json():
        print_json(found)
        return
    for change in found["changes"]:
        print(f"{'new' if change['is_new'] else 'changed'}: {change['list']}")
        for sign, field in (("+", "added"), ("-", "removed"), ("~", "properties")):
            for one in change[field]:
                print(f"  {sign} {one}")
    verb = "Would change" if dry_run else "Changed"
    print(f"{verb} {plural(len(found['changes']), 'list')}; {found['unchanged']} unchanged.")


def _changed_targets(present: list[str], added: list[str], removed: list[str]) -> list[str]:
    gone = {address.casefold() for address in removed}
    if missing := gone - {address.casefold() for address in present}:
        raise InvalidInput("cli.no_target", f"{min(missing)} is not a target of the list", field="--remove-target")
    return [*(address for address in present if address.casefold() not in gone), *added]
