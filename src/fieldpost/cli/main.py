"""The command `fieldpost`: where each command is implemented, and how errors are printed.

A new noun is one module and one line in `CommandGroup`. The module is imported when the command is used; it imports
only typer and the standard library at its top, the rest inside functions, so that `--help` stays fast.

Exit codes: 0 success, 1 bug, 2 wrong usage, 3 invalid input, 4 not found, 5 conflict, 6 denied, 7 unavailable (retry
later), 8 wrong configuration, 9 a doctor check failed, 10 the target refused permanently, 130 interrupted.
"""

import os
import sys
from typing import Annotated, ClassVar, NoReturn

import typer

import fieldpost
from fieldpost.cli import options, output, profiles
from fieldpost.cli.loading import CommandsOnDemand
from fieldpost.core.errors import (
    ConfigError,
    Conflict,
    Denied,
    FieldpostError,
    InvalidInput,
    NotFound,
    OperationFailed,
    Unavailable,
)

EXIT_CODES: dict[type[FieldpostError], int] = {
    InvalidInput: 3,
    NotFound: 4,
    Conflict: 5,
    Denied: 6,
    Unavailable: 7,
    ConfigError: 8,
    OperationFailed: 10,
}


class CommandGroup(CommandsOnDemand):
    places: ClassVar = {
        "login": "api.login:login",
        "logout": "api.login:logout",
        "profiles": "api.login:profiles",
        "me": "api.login:me",
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
        "site": "local.site:app",
        "notifications": "api.notifications:app",
        "bulk-actions": "api.bulk_actions:app",
        "lists": "api.lists:app",
        "channels": "api.channels:app",
        "secrets": "api.secrets:app",
        "sites": "api.sites:app",
        "users": "api.users:app",
        "tokens": "api.tokens:app",
        "cached-calls": "api.cached_calls:app",
        "intents": "api.intents:app",
        "breakers": "api.breakers:app",
        "audit": "api.audit:app",
        "settings": "api.settings:app",
        "sessions": "api.login:sessions",
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
        typer.Option(
            "--profile", envvar="FIELDPOST_PROFILE", help="Profile to use, from `fieldpost login`.", show_default=False
        ),
    ] = None,
) -> None:
    profiles.choose(profile)


@app.command()
def version() -> None:
    """Print the version."""
    output.done({"version": fieldpost.__version__}, fieldpost.__version__)


def main() -> NoReturn:
    """The entry point. A FieldpostError becomes one line on stderr and an exit code, never a traceback."""
    options.reset()
    _open_standard_streams()
    out = sys.stdout
    try:
        try:
            app()
        finally:
            out.flush()  # here, where a closed pipe is handled, not when the interpreter exits
    except FieldpostError as error:
        print(output.one_line(f"fieldpost: {error} [{error.code}]"), file=sys.stderr)
        sys.exit(exit_code(error))
    except (BrokenPipeError, SystemExit) as end:
        # The reader closed the pipe. Typer and the interpreter's exit would report that as an error.
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("FIELDPOST_TRACEBACK"):
            raise
        print(f"fieldpost: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        print("fieldpost: set FIELDPOST_TRACEBACK=1 for a traceback, and please report this bug", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _open_standard_streams() -> None:
    """Make sure that descriptors 0, 1 and 2 are open.

    A process may be started with stderr closed, say. The next file or socket would get its number, and everything
    written to stderr would end up there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


def exit_code(error: FieldpostError) -> int:
    """The exit code for this kind of error."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)
