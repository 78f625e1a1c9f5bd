"""cli.md: every command with its arguments and options, from the typer application itself."""

from pathlib import Path
from typing import Any

import typer
from markdown import code, page, table

from fieldpost.cli import main as cli
from fieldpost.cli.local.doctor import UNWELL

INTRODUCTION = """\
Made by `make docs` from the commands themselves; `fieldpost COMMAND --help` says the same.

Nouns in the plural (`notifications`, `lists`, `channels`, `sites`) speak to a running central over its API: they need
its address (`--url`) and an API token, from `FIELDPOST_TOKEN` or from a file, never from the command line. Bare
`fieldpost central` and `fieldpost site` run a process. `send` and `status` act on the site folder of this machine.
Every command that tells something takes `--json`; exports write a file in the format that is asked for."""

EXIT_INTRODUCTION = """\
## Exit codes

An error is one line on stderr, `fieldpost: what happened (what to do) [code]`, and one of these exit codes. The codes
in brackets are listed in [errors](errors.md)."""

EXITS = ((0, "done"), (1, "a bug in Fieldpost; `FIELDPOST_TRACEBACK=1` shows where"), (2, "wrong usage"))
OWN = {
    "Conflict": "; of a bulk action: not all could be done",
    "Unavailable": ": trying again later may help",
}
HIDDEN = ("--install-completion", "--show-completion", "--help")


def render(_root: Path) -> str:
    exits = [*EXITS, (UNWELL, "the doctor found something that fails"), (130, "interrupted")]
    exits += [(number, code(kind.__name__) + OWN.get(kind.__name__, "")) for kind, number in cli.EXIT_CODES.items()]
    return page(
        "Command line",
        INTRODUCTION,
        *_commands(typer.main.get_command(cli.app), ["fieldpost"]),
        EXIT_INTRODUCTION,
        table(("exit code", "means"), [(code(number), what) for number, what in sorted(exits)]),
    )


def _commands(command: Any, path: list[str]) -> list[str]:
    found: dict[str, Any] = getattr(command, "commands", {})
    parts = [] if found and not getattr(command, "invoke_without_command", False) else [_command(command, path)]
    for name in sorted(found):
        parts += _commands(found[name], [*path, name])
    return parts


def _command(command: Any, path: list[str]) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.opts[0] not in HIDDEN]
    usage = " ".join([*path, *(["[OPTIONS]"] if options else []), *(_usage(p) for p in arguments)])
    parts = [f"## `{' '.join(path)}`", f"    {usage}", _help(command.help)]
    if arguments:
        parts.append(table(("argument", "what it is"), [(code(_name(p)), p.help or "") for p in arguments]))
    if options:
        rows = [(_spelled(p), _default(p), p.help or "") for p in options]
        parts.append(table(("option", "default", "what it does"), rows))
    return "\n\n".join(parts)


def _help(text: str | None) -> str:
    paragraphs = (text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _name(param: Any) -> str:
    return str(param.metavar or param.name).upper()


def _usage(param: Any) -> str:
    return _name(param) if param.required else f"[{_name(param)}]"


def _spelled(param: Any) -> str:
    spelled = ", ".join(code(option) for option in (*param.opts, *param.secondary_opts))
    variable = f" (or {code(param.envvar)})" if param.envvar else ""
    return f"{spelled}{', repeatable' if param.multiple else ''}{variable}"


def _default(param: Any) -> str:
    if param.required:
        return "required"
    return "" if param.default in (None, False, "", ()) else code(param.default)
