"""verbs.md: every verb of the API, the page of the console and the command that do the same. A hole is an error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import console_pages
import typer
from markdown import code, page, table
from page_api import who

from fieldpost.cli import main as cli
from fieldpost.front.api import routes as api_routes
from fieldpost.front.api.openapi import operation_id, plain
from fieldpost.front.http.endpoint_spec import promise_of

INTRODUCTION = """\
Made by `make docs`. Every verb of the API (`GET /api/v1/openapi.json` describes them all), the page of the console and
the commands that do the same; a test fails on a verb without a page or a command that is not named below with its
reason. A page that is reached by a button is shown as its `POST`."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "health_show": ("doctor",),
    "kpis_show": ("kpis",),
    "kpis_by_site": ("kpis",),
    "kpis_history": ("kpis",),
    "nodes_show_all": ("nodes",),
    "notifications_page": ("notifications list",),
    "submissions_send": ("notifications send",),
    "notifications_parked_groups": ("notifications groups",),
    "notifications_show": ("notifications show", "notifications explain"),
    "notifications_retry": ("notifications retry",),
    "notifications_discard": ("notifications discard",),
    "bulk_actions_show_all": ("bulk-actions list",),
    "bulk_actions_start": ("notifications retry", "notifications discard"),
    "bulk_actions_preview": ("notifications retry", "notifications discard"),
    "bulk_actions_show": ("bulk-actions show",),
    "bulk_actions_rows": ("bulk-actions rows",),
    "bulk_actions_cancel": ("bulk-actions cancel",),
    "lists_show_all": ("lists list",),
    "lists_add": ("lists add",),
    "lists_show": ("lists show",),
    "lists_change": ("lists change",),
    "lists_remove": ("lists remove",),
    "lists_export": ("lists export",),
    "lists_import": ("lists import",),
    "channels_show_all": ("channels list",),
    "channels_add": ("channels add",),
    "channels_show": ("channels show",),
    "channels_change": ("channels change",),
    "channels_remove": ("channels remove",),
    "channels_test": ("channels test",),
    "secrets_show": ("secrets show",),
    "secrets_rotate": ("secrets rotate",),
    "breakers_show_all": ("breakers list",),
    "breakers_reset": ("breakers reset",),
    "sites_show_all": ("sites list",),
    "sites_add": ("sites add",),
    "sites_show": ("sites show",),
    "sites_rotate": ("sites rotate-token",),
    "sites_revoke": ("sites revoke",),
    "site_health_show_all": ("sites list", "doctor"),
    "site_health_show": ("sites health",),
    "site_health_history": ("sites health",),
    "cached_calls_page": ("cached-calls list",),
    "cached_calls_show": ("cached-calls show",),
    "intents_page": ("intents list",),
    "intents_give": (
        "cached-calls retry",
        "cached-calls discard",
        "cached-calls parked",
        "cached-calls reconcile",
        "sites events",
        "sites rejected",
        "sites resubmit",
        "sites discard-rejected",
    ),
    "intents_show": ("intents show",),
    "intents_cancel": ("intents cancel",),
    "audit_page": ("audit list",),
    "audit_export": ("audit export",),
    "settings_show": ("settings show",),
    "users_me": ("me", "login"),
    "users_sessions": ("sessions list", "users show"),
    "users_end_session": ("sessions end",),
    "tokens_show_all": ("tokens list",),
    "tokens_add": ("tokens add",),
    "tokens_revoke": ("tokens revoke", "logout"),
    "users_show_all": ("users list",),
    "users_add": ("users add",),
    "users_show": ("users show",),
    "users_change": ("users change", "users disable", "users enable"),
    "users_remove": ("users remove",),
    "users_reset_password": ("users reset-password",),
    "users_log_out": ("users log-out",),
}
WITHOUT_COMMAND = {
    "health_alive": "a probe, for whoever watches the process",
    "health_ready": "a probe; `fieldpost doctor` on central's machine asks for the same",
    "health_metrics": "for Prometheus",
    "openapi_show": "for programs; this page is for people",
    "submissions_send_batch": "for programs; a shell sends one by one, or from a site",
}
LOCAL = {
    "call",
    "central",
    "demo",
    "migrate",
    "profiles",
    "secrets new-key",
    "send",
    "site",
    "status",
    "version",
    "write",
}
"""Commands that act on this machine and ask no API; `site` stands for all below it."""


def render(_root: Path) -> str:
    check()
    rows = []
    for route in api_routes.ROUTES:
        if promise_of(route.handler) is not None:
            name = operation_id(route)
            commands = "<br>".join(code(f"fieldpost {command}") for command in COMMANDS.get(name, ()))
            pages = "<br>".join(_page(each) for each in console_pages.PAGES_OF.get(name, ()))
            rows.append(
                (
                    code(route.method),
                    code(plain(route.path)),
                    who(route.access),
                    pages or console_pages.WITHOUT_PAGE[name],
                    commands or WITHOUT_COMMAND[name],
                )
            )
    return page(
        "Verbs",
        INTRODUCTION,
        table(
            ("method", "path", "who", "page of the console, or why there is none", "command, or why there is none"),
            rows,
        ),
        "The paths below `/link/` are what sites speak, and [their own protocol](../explanation/link.md). Commands that"
        " ask no API act on this machine: "
        + ", ".join(code(f"fieldpost {command}") for command in sorted(LOCAL))
        + ". They are in the [command line](cli.md) with all others.",
    )


def check() -> None:
    """Raise LookupError naming a verb without a command or a page, or one of these without a verb."""
    verbs = {operation_id(route) for route in api_routes.ROUTES if promise_of(route.handler) is not None}
    console_pages.check(verbs)
    known = {*COMMANDS, *WITHOUT_COMMAND}
    commands = {name for name in _commands(typer.main.get_command(cli.app), []) if not _is_local(name)}
    used = {name for names in COMMANDS.values() for name in names}
    for what, holes in (
        ("verbs of the API without a command", verbs - known),
        ("verbs that the API does not have", known - verbs),
        ("commands without a verb", commands - used),
        ("commands that there are not", used - commands),
    ):
        if holes:
            raise LookupError(f"{what}: {', '.join(sorted(holes))} (see tools/reference/page_verbs.py)")


def _page(name: str) -> str:
    method, path = name.split()
    return code(plain(path) if method == "GET" else f"{method} {plain(path)}")


def _is_local(name: str) -> bool:
    return name in LOCAL or name.split(maxsplit=1)[0] == "site"


def _commands(command: Any, path: list[str]) -> Iterator[str]:
    found: dict[str, Any] = getattr(command, "commands", {})
    if not found:
        yield " ".join(path)
    for name, child in found.items():
        yield from _commands(child, [*path, name])
