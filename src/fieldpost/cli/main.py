"""The command ``fieldpost``: every command's place, and what its errors look like.

A new noun is one module beside this one and one line below; it is imported when it is asked for. Such a module imports
only typer and the standard library at its top, and the rest inside its functions, so that `--help` stays quick.

Exit codes: 0 done, 1 a bug, 2 wrong usage, 3 invalid input, 4 not found, 5 conflict, 6 denied, 7 unavailable (try again
later), 8 wrong configuration, 9 the doctor found something that fails, 10 the target refused it for good, 130
interrupted.
"""

import os
import sys
from typing import Annotated, ClassVar, NoReturn

import typer

import fieldpost
from fieldpost.cli import output, profiles
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
        "login": "profiles:login",
        "logout": "profiles:logout",
        "profiles": "profiles:profiles",
        "me": "api.me:me",
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
        "sessions": "api.me:sessions",
    }


app = typer.Typer(
    cls=CommandGroup,
    name="fieldpost",
    help="Machines at sites notify people over links that fail.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(fieldpost.__version__)
        raise typer.Exit


@app.callback()
def options(
    is_version: Annotated[
        bool, typer.Option("--version", help="Print the version of Fieldpost.", is_eager=True, callback=_print_version)
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", envvar="FIELDPOST_PROFILE", help="The profile to use, of `login`.", show_default=False
        ),
    ] = None,
) -> None:
    """Machines at sites notify people over links that fail."""
    profiles.choose(profile)


@app.command()
def version(as_json: output.JsonOption = False) -> None:
    """Print the version of Fieldpost."""
    output.say({"version": fieldpost.__version__}, as_json, fieldpost.__version__)


def main() -> NoReturn:
    """The entry point: a FieldpostError becomes one line on stderr and its exit code, never a traceback."""
    _open_standard_streams()
    out = sys.stdout
    try:
        try:
            app()
        finally:
            out.flush()  # here, where a reader that has gone is no error, and not at the interpreter's end
    except FieldpostError as error:
        print(output.one_line(f"fieldpost: {error} [{error.code}]"), file=sys.stderr)
        sys.exit(exit_code(error))
    except (BrokenPipeError, SystemExit) as end:
        # Whoever read our output has gone. Typer makes an error of that, and the interpreter would at its end.
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("FIELDPOST_TRACEBACK"):
            raise
        print(f"fieldpost: this is a bug: {type(error).__name__}: {error}", file=sys.stderr)
        print("fieldpost: set FIELDPOST_TRACEBACK=1 to see where it happened", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _open_standard_streams() -> None:
    """Let 0, 1 and 2 be taken before anything else is opened.

    A process may be started with its stderr closed, say. The next file or socket would then get its number, and
    whatever is written to stderr would go there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


def exit_code(error: FieldpostError) -> int:
    """The exit code of this kind of error."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)
