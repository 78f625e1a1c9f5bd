"""The commands of `fieldpost` and where each is implemented.

A new noun is one module and one line in `CommandGroup`. The module is imported when the command is used; it imports
only typer and the standard library at its top, the rest inside functions, so that `--help` stays fast.
"""

from typing import Annotated, ClassVar

import typer

import fieldpost
from fieldpost.cli import output, profiles
from fieldpost.cli.loading import CommandsOnDemand


class CommandGroup(CommandsOnDemand):
    places: ClassVar = {
        "login": "api.access.login:login",
        "logout": "api.access.login:logout",
        "profiles": "api.access.login:profiles",
        "me": "api.access.login:me",
        "central": "local.central:central",
        "migrate": "local.central:migrate",
        "doctor": "local.doctor:doctor",
        "kpis": "api.kpis:kpis",
        "nodes": "api.kpis:nodes",
        "send": "local.script:send",
        "call": "local.script:call",
        "write": "local.script:write",
        "status": "local.script:status",
        "demo": "local.demo:demo",
        "relay": "local.relay:relay",
        "listen": "local.listen:listen",
        "site": "local.site:app",
        "outbox": "local.outbox:app",
        "notifications": "api.notifications:app",
        "bulk-actions": "api.bulk_actions:app",
        "events": "api.events.events:app",
        "topics": "api.events.topics:app",
        "subscriptions": "api.events.subscriptions:app",
        "routes": "api.events.routes:app",
        "templates": "api.events.templates:app",
        "lists": "api.lists:app",
        "channels": "api.channels:app",
        "secrets": "api.secrets:app",
        "sites": "api.sites.sites:app",
        "users": "api.access.users:app",
        "tokens": "api.access.tokens:app",
        "zgw-clients": "api.access.zgw_clients:app",
        "cached-calls": "api.sites.cached_calls:app",
        "intents": "api.sites.intents:app",
        "breakers": "api.breakers:app",
        "audit": "api.audit:app",
        "settings": "api.settings:app",
        "sessions": "api.access.login:sessions",
    }


HELP = "Store-and-forward notifications from field sites to people."

app = typer.Typer(
    cls=CommandGroup,
    name="fieldpost",
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(fieldpost.__version__)
        raise typer.Exit


@app.callback(help=HELP)
def root(
    is_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option("--profile", envvar="FIELDPOST_PROFILE", help="Profile to use, from `fieldpost login`."),
    ] = None,
) -> None:
    profiles.choose(profile)


@app.command()
def version() -> None:
    """Print the version."""
    output.done({"version": fieldpost.__version__}, fieldpost.__version__)
