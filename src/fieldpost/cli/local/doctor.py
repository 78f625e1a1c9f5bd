"""`fieldpost doctor`: checks central on this machine, or with --remote the whole installation over the API."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldpost.cli.local.central import ConfigOption, DataFolderOption, StoreOption, settings_with
from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fieldpost.core.checks import Check, Diagnosis
    from fieldpost.link.http.client import ApiClient

EXPIRES_SOON_DAYS = 14
UNWELL = 9
"""The exit code when a check fails."""


def doctor(
    config: ConfigOption = None,
    store: StoreOption = None,
    folder: DataFolderOption = None,
    port: Annotated[int | None, typer.Option(help="Port of central.  [default: 8025]")] = None,
    is_remote: Annotated[
        bool,
        typer.Option("--remote", help="Ask the running central over its API for the issues of the whole installation."),
    ] = False,
) -> None:
    """Check central on this machine: settings, disk, store, clock, schema, nodes, leader.

    With --remote it needs no files of central: it shows the issues of the whole installation, as the console's Health
    page does.

    It changes nothing. The exit code is 9 when a check fails or an issue is worse than a warning, else 0.
    """
    from fieldpost.core.checks import Diagnosis

    show_diagnosis(
        Diagnosis(tuple(_installation(central()))) if is_remote else _this_machine(config, store, folder, port)
    )


def show_diagnosis(found: "Diagnosis", **more: object) -> None:
    """Print the checks, in JSON with `more` fields; exit with 9 if one fails."""
    from fieldpost.core.checks import CheckVerdict

    checks = [{"name": check.name, "status": check.verdict.value, "detail": check.detail} for check in found.checks]
    if is_json():
        print_json({"status": found.verdict.value, "checks": checks, **more})
    else:
        print_rows({"check": "name", "status": "status", "detail": "detail"}, checks)
    if found.verdict is CheckVerdict.FAILING:
        raise typer.Exit(UNWELL)


def _installation(client: "ApiClient") -> "Iterator[Check]":
    """The API itself, then one check for each issue. An unreachable central ends the command with an error."""
    from fieldpost.core.checks import Check, CheckVerdict

    me = client.get("me")
    yield Check("api", CheckVerdict.OK, f"{client.url} answers; {me['name']} is {me['role']}")
    yield from _token_checks(client)
    issues = client.get("health")["issues"]
    for issue in issues:
        is_warning = issue["severity"] == "warning"
        yield Check(issue["code"], CheckVerdict.WARNING if is_warning else CheckVerdict.FAILING, issue["text"])
    if not issues:
        yield Check("issues", CheckVerdict.OK, "none")


def _token_checks(client: "ApiClient") -> "Iterator[Check]":
    """API tokens that expire soon, with the command that renews them."""
    from datetime import timedelta

    from fieldpost.clock import SystemClock
    from fieldpost.core.checks import Check, CheckVerdict
    from fieldpost.core.times import from_text

    soon = SystemClock().now() + timedelta(days=EXPIRES_SOON_DAYS)
    for token in client.get("tokens")["tokens"]:
        expires_at = from_text(token["expires_at"]) if token["expires_at"] else None
        if expires_at is not None and expires_at < soon:
            name = shlex.quote(token["name"] or token["token_id"])
            detail = f"token {name} expires on {expires_at:%Y-%m-%d}; renew it: fieldpost tokens rotate {name}"
            yield Check("token", CheckVerdict.WARNING, detail)


def _this_machine(config: Path | None, store: str | None, folder: str | None, port: int | None) -> "Diagnosis":
    import asyncio

    from fieldpost.run import logs
    from fieldpost.run.doctor import examine

    settings = settings_with(config, store, folder, port=port)
    logs.configure("error")
    return asyncio.run(examine(settings, file=config))
