"""`fieldpost channels`: configured channels."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fieldpost.cli.arguments import DefaultRateOption, RateOption, RetryPolicyOption
from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import (
    Table,
    done,
    health_of,
    moment,
    print_fields,
    print_json,
    print_lines,
    show_fields,
    show_table,
)
from fieldpost.core.errors import InvalidInput
from fieldpost.core.setting import parse_scalar

app = typer.Typer(help="Channels: configured adapters that deliver notifications.", no_args_is_help=True)

TEST_S = 150.0
ChannelNameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the channel.")]
SET_HELP = "Setting as name=value. Repeatable. Values are parsed as JSON; quote a number to make it a string."
SecretOption = Annotated[
    list[str] | None,
    typer.Option("--secret", help="Name of a secret, e.g. password; its value is read from the terminal or a pipe."),
]
SecretFileOption = Annotated[
    list[str] | None, typer.Option("--secret-file", help="Secret from a file, as name=file. Repeatable.")
]
MaxRetriesOption = Annotated[
    int | None,
    typer.Option("--max-retries", help="Number of attempts without progress before a notification is parked."),
]
ReceiptWaitOption = Annotated[
    float | None, typer.Option("--receipt-wait-s", help="Seconds to wait for the receipt of an accepted target.")
]
ReceiptMissingOption = Annotated[
    str | None, typer.Option("--receipt-missing", help="Without a receipt: delivered, retry or park.")
]
RetryDelayOption = Annotated[float | None, typer.Option("--retry-delay-s", help="Seconds between attempts.")]


def _brief(settings: dict[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items() if name in ("host", "port", "from_address"))


def _waiting(one: Mapping[str, Any]) -> str:
    return f"{one['waiting']}{' or more' if one.get('has_more') else ''}"


def _paused(pause: Mapping[str, Any]) -> str:
    of = " of ".join(text for text in (pause["target"], pause["list_name"]) if text)
    return f"{of + ' ' if of else ''}until {moment(pause['until'])}: {pause['reason']}"


def _list_line(one: Mapping[str, Any]) -> str:
    rate = f", {one['rate']}" if one["rate"] else ""
    return f"{one['waiting']}{rate}, until {moment(one['empty_at'])}"


def _pause(channel: Mapping[str, Any]) -> str | None:
    pauses = channel["backlog"]["pauses"]
    more = f" and {len(pauses) - 1} more" if len(pauses) > 1 else ""
    return _paused(pauses[0]) + more if pauses else None


CHANNELS = Table(
    "channels",
    {
        "name": "name",
        "type": "type",
        "default": "is_default",
        "health": health_of,
        "held": "held",
        "rate": lambda one: one["backlog"]["rate"],
        "paused": _pause,
        "waiting": lambda one: _waiting(one["backlog"]),
        "empty at": lambda one: moment(one["backlog"]["empty_at"]),
        "settings": lambda one: _brief(one["settings"]),
    },
    empty="No channels yet. Add one: fieldpost channels add NAME --type email --set host=… --set tls=… "
    "--set from_address=… --default",
)


@app.command()
def add(
    name: ChannelNameArgument,
    set_: Annotated[list[str] | None, typer.Option("--set", help=SET_HELP)] = None,
    secret: SecretOption = None,
    secret_file: SecretFileOption = None,
    type_: Annotated[str, typer.Option("--type", help="Type of the channel.")] = "email",
    default: Annotated[bool, typer.Option("--default", help="Make it the default of its type.")] = False,
    max_retries: MaxRetriesOption = None,
    retry_delay_s: RetryDelayOption = None,
    retry: RetryPolicyOption = None,
    rate: RateOption = None,
    receipt_wait_s: ReceiptWaitOption = None,
    receipt_missing: ReceiptMissingOption = None,
) -> None:
    """Add a channel, e.g. --type email --set host=mail.example.org --set tls=starttls --set from_address=ops@…"""
    body = {
        "name": name,
        "type": type_,
        "settings": read_settings(set_ or []),
        "secrets": read_secrets(secret or [], secret_file or []),
        "is_default": default,
        "max_retries": max_retries,
        "retry_delay_s": retry_delay_s,
        "retry": retry,
        "rate": rate,
        "receipt_wait_s": receipt_wait_s,
        "receipt_missing": receipt_missing,
    }
    added = central().post("channels", body=body)
    done(added, f"Added channel {name}{', the default of its type' if default else ''}.")
    _warn(added)


@app.command("list")
def list_() -> None:
    """List all channels."""
    show_table(central().get("channels"), CHANNELS)


@app.command()
def show(name: ChannelNameArgument) -> None:
    """Show a channel and its settings. Secrets are not shown."""
    found = central().get("channels", name)
    show_fields(
        found,
        {
            "name": "name",
            "type": "type",
            "default": "is_default",
            "version": "version",
            "max_retries": "max_retries",
            "retry_delay_s": "retry_delay_s",
            "retry": "retry",
            "rate": lambda one: one["rate"] or "(default of the type)",
            "receipt_wait_s": "receipt_wait_s",
            "receipt_missing": "receipt_missing",
            "health": health_of,
            "held": "held",
            "rate in force": lambda one: one["backlog"]["rate"] or "none",
            "waiting": lambda one: _waiting(one["backlog"]),
            "empty at": lambda one: moment(one["backlog"]["empty_at"]),
        },
        *(("paused", _paused(pause)) for pause in found["backlog"]["pauses"]),
        *((f"waiting for {one['list_name']}", _list_line(one)) for one in found["backlog"]["lists"] if one["waiting"]),
        *found["settings"].items(),
        *((name, f"({state})") for name, state in found["secrets"].items()),
        *(("warning", warning) for warning in found["warnings"]),
    )


@app.command()
def change(
    name: ChannelNameArgument,
    set_: Annotated[list[str] | None, typer.Option("--set", help=f"{SET_HELP} name=null restores the default.")] = None,
    secret: SecretOption = None,
    secret_file: SecretFileOption = None,
    clear_secret: Annotated[list[str] | None, typer.Option(help="Secret to remove. Repeatable.")] = None,
    default: Annotated[
        bool | None, typer.Option("--default/--no-default", help="Make it the default of its type, or not.")
    ] = None,
    max_retries: MaxRetriesOption = None,
    retry_delay_s: RetryDelayOption = None,
    retry: RetryPolicyOption = None,
    inherit_retry: Annotated[
        bool, typer.Option("--inherit-retry", help="Drop the policy given by --retry; retry at a fixed delay.")
    ] = False,
    rate: RateOption = None,
    default_rate: DefaultRateOption = False,
    receipt_wait_s: ReceiptWaitOption = None,
    receipt_missing: ReceiptMissingOption = None,
) -> None:
    """Change settings, secrets or retry policy of a channel. Everything else stays unchanged."""
    client = central()
    settings = read_settings(set_ or [])
    secrets: dict[str, object] = {**read_secrets(secret or [], secret_file or []), **dict.fromkeys(clear_secret or [])}
    body: dict[str, Any] = {"settings": settings, "secrets": secrets}
    given = {
        "is_default": default,
        "max_retries": max_retries,
        "retry_delay_s": retry_delay_s,
        "receipt_wait_s": receipt_wait_s,
        "receipt_missing": receipt_missing,
    }
    body |= {field: value for field, value in given.items() if value is not None}
    if retry is not None or inherit_retry:
        body["retry"] = retry
    if rate is not None or default_rate:
        body["rate"] = rate
    if len(body) == 2 and not settings and not secrets:
        raise InvalidInput("cli.nothing", "nothing to change: give at least one option")
    body["version"] = client.get("channels", name)["version"]
    changed = client.patch("channels", name, body=body)
    done(changed, f"Changed channel {name}.")
    _warn(changed)


@app.command("test")
def test_channel(
    name: ChannelNameArgument,
    to: Annotated[str, typer.Option("--to", help="Target of the test, e.g. your own mail address.")],
) -> None:
    """Send a test notification and print the transcript. Needs the role admin; the test is audited."""
    show_test(central(TEST_S).post("channels", name, "test", body={"to": to}))


def show_test(tested: dict[str, Any]) -> None:
    """Print the conversation and outcome of a test; exit with 1 unless it was delivered."""
    if is_json():
        print_json(tested)
    else:
        print_lines(tested["transcript"])
        print_fields([("outcome", tested["outcome"]), ("error", tested["error"]), ("cost", tested["cost"])])
    if tested["outcome"] != "delivered":
        raise typer.Exit(1)


@app.command()
def remove(name: ChannelNameArgument) -> None:
    """Remove a channel that no list uses."""
    central().delete("channels", name)
    done({"name": name, "is_removed": True}, f"Removed channel {name}.")


def _warn(channel: dict[str, Any]) -> None:
    for warning in () if is_json() else channel["warnings"]:
        print(f"Warning: {warning}.", file=sys.stderr)


def read_settings(given: list[str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput("cli.set", f"--set must be name=value, got {name[:64]!r}", field="--set")
        if name in settings:
            raise InvalidInput("cli.set", f"--set {name[:64]} is given twice", field="--set")
        settings[name] = parse_scalar(value)
    return settings


def read_secrets(asked: list[str], files: list[str]) -> dict[str, str]:
    """Secrets come from a terminal, a pipe or a file, never from the command line, which other users can read."""
    import getpass

    secrets: dict[str, str] = {}
    for name in asked:
        if "=" in name:
            raise InvalidInput(
                "cli.secret",
                "--secret takes only a name; the value is read from the terminal or a pipe",
                field="--secret",
            )
        secrets[name] = getpass.getpass(f"{name}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    for given in files:
        name, equals, file = given.partition("=")
        if not equals or not name:
            raise InvalidInput("cli.secret", "--secret-file must be name=file", field="--secret-file")
        try:
            secrets[name] = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise InvalidInput("cli.secret", f"cannot read {file}: {reason}", field="--secret-file") from None
    for name, secret in secrets.items():
        if not secret:
            raise InvalidInput("cli.secret", f"{name} is empty; use --clear-secret to remove it", field="--secret")
    return secrets
