"""log-events.md: every event that Fieldpost logs, with its level and the values it carries."""

import ast
from collections import defaultdict
from pathlib import Path

import source
from markdown import code, page, table

INTRODUCTION = """\
Made by `make docs` from the source.

Log lines go to stderr: coloured on a terminal, `key=value` lines in a file or pipe, JSON with `--log-json` or
`log.json = true`. Each has `timestamp`, `level` and `event`, and the values below. Bodies and secrets are never logged.
A log that cannot be written does not stop the work."""

LEVELS = ("debug", "info", "warning", "error", "exception")


def render(root: Path) -> str:
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: {"levels": set(), "values": set(), "backend": set()})
    for name, module in source.modules(root):
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and _is_log(node):
                for event in source.texts(node.args[0], {}):
                    one = found[event]
                    one["levels"].add("error" if source.called(node) == "exception" else source.called(node))
                    one["values"] |= {k.arg for k in node.keywords if k.arg and k.arg not in ("exc_info", "stack_info")}
                    one["backend"].add(name)
    rows = [
        (
            code(event),
            ", ".join(sorted(one["levels"])),
            ", ".join(code(name) for name in sorted(one["values"])),
            ", ".join(code(room) for room in sorted(one["backend"])),
        )
        for event, one in sorted(found.items())
    ]
    return page("Log events", INTRODUCTION, table(("event", "level", "values", "logged by"), rows))


def _is_log(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr=level, value=ast.Name(id="log" | "_log" | "logger")):
            return level in LEVELS and bool(call.args)
        case _:
            return False
