"""The entry point of `fieldpost`: runs a command, prints errors as one line and turns them into exit codes.

Exit codes: 0 success, 1 bug, 2 wrong usage, 3 invalid input, 4 not found, 5 conflict, 6 denied, 7 unavailable (retry
later), 8 wrong configuration, 9 a doctor check failed, 10 the target refused permanently, 130 interrupted.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

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
from fieldpost.core.text import printable

EXIT_CODES: dict[type[FieldpostError], int] = {
    InvalidInput: 3,
    NotFound: 4,
    Conflict: 5,
    Denied: 6,
    Unavailable: 7,
    ConfigError: 8,
    OperationFailed: 10,
}

CENTRAL_PACKAGES = (
    *("aiosmtplib", "alembic", "argon2", "asyncpg", "cryptography", "httptools", "jinja2", "prometheus_client"),
    *("sqlalchemy", "starlette", "uvicorn", "websockets"),
)
"""The imports that `fieldpost[central]` adds to the base install."""


def main() -> NoReturn:
    """The entry point. A FieldpostError becomes one line on stderr and an exit code, never a traceback."""
    _open_standard_streams()
    out = sys.stdout
    try:
        try:
            with _missing_extras():
                _run(sys.argv[1:])
        finally:
            out.flush()  # here, where a closed pipe is handled, not when the interpreter exits
    except FieldpostError as error:
        _print_error(error)
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


def _print_error(error: FieldpostError) -> None:
    """One line for people; with `--json` an object, so that programs need not read sentences."""
    from fieldpost.cli.options import is_json

    if is_json():
        _print_json(code=error.code, message=error.message, field=error.field, hint=error.hint)
    else:
        print(printable(f"fieldpost: {error} [{error.code}]"), file=sys.stderr)


def _print_json(**error: str | None) -> None:
    print(json.dumps({"error": error}, ensure_ascii=False), file=sys.stderr)


def _run(arguments: list[str]) -> None:
    from fieldpost.cli.local.agent import agent_options, run_agent

    if (agent := agent_options(arguments)) is not None:
        run_agent(agent.folder, agent.log_level, agent.log_json)
        return
    from fieldpost.cli import commands, options

    options.reset()
    if "--json" in arguments:
        _run_for_program(commands.app)
    else:
        commands.app()


def _run_for_program(app: Callable[..., object]) -> NoReturn:
    """Run a command with `--json`: errors in its usage are JSON, too. They occur before the options are read."""
    import typer

    usage_error: Any = typer.BadParameter.__base__
    try:
        code = app(prog_name="fieldpost", standalone_mode=False)
    except usage_error as error:
        hint = f"see `{error.ctx.command_path} --help`" if error.ctx else None
        _print_json(code="cli.usage", message=error.format_message(), field=None, hint=hint)
        sys.exit(error.exit_code)
    except typer.Abort:
        _print_json(code="cli.aborted", message="the question was not answered with yes", field=None, hint=None)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _missing_extras() -> Iterator[None]:
    """Turn the import error of a command whose extra is not installed into a ConfigError."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in CENTRAL_PACKAGES:
            raise
        raise ConfigError(
            "install.no_central",
            f"this command needs the packages of central, and {package} is not installed",
            hint='pip install "fieldpost[central]"',
        ) from None


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
