"""errors.md: every error code in the source, with what it says, its HTTP status and its exit code.

Errors are found where they are made: a call of one of FieldpostError's children, or of what carries a code elsewhere,
with the code as a plain text. Where a small function makes them for its module, as `_invalid(field, rule)`, the texts
of its callers are put in place of its parameters.
"""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

import source
from markdown import code, page, table

from fieldpost.cli.main import exit_code
from fieldpost.core import errors as kinds
from fieldpost.front.http.problems import status_of

INTRODUCTION = """\
Made by `make docs` from the source.

Every error that Fieldpost raises on purpose has a code whose meaning never changes. It stands in brackets at the end of
the line on the command line, in the field `code` of an answer of the API, and in the attribute `code` of an exception
in a script. What it says is shown with a *name* or … where a value goes. *Kind* is the exception, from
`fieldpost.core.errors`; where it is none, it says where the code is seen. *HTTP* is the status in the API. The
field `type` of a problem, of central's API and of a site's local one, is `urn:fieldpost:error:` and the code. Each code
has its own place on this page: `errors.md#CODE`.

| kind | means | exit code |
|---|---|---|
"""

# Who carries a code: its kind, and the places of the code and of what it says among the arguments.
CARRIERS: dict[str, tuple[str, int, int]] = {
    "InvalidInput": ("InvalidInput", 0, 1),
    "NotFound": ("NotFound", 0, 1),
    "Conflict": ("Conflict", 0, 1),
    "NotAsSeen": ("Conflict", 0, 1),
    "Denied": ("Denied", 0, 1),
    "Unavailable": ("Unavailable", 0, 1),
    "ConfigError": ("ConfigError", 0, 1),
    "OperationFailed": ("OperationFailed", 0, 1),
    "Refusal": ("on the link", 0, 1),
    "Result": ("on the link", 2, 3),
    "Refused": ("in the rejected box", 0, 1),
    "_failed": ("in the agent's log", 0, 1),
    "Problem": ("in the API", 3, 4),
}
# A refusal of a cached call is told to its script, or parks; only central's refusals go to the rejected box.
CALL_CARRIERS = tuple(f"site/carriers/{name}.py" for name in ("http", "database", "sqlite", "postgresql"))
# What only ever happens on the machine of who asks has no HTTP status.
LOCAL = ("cli/", "demo/", "run/", "site/", "link/client.py", "link/endpoint.py", "link/status.py")
Function = ast.FunctionDef | ast.AsyncFunctionDef
CODE = re.compile(r"[a-z_]+(\.[a-z_0-9]+)?")


@dataclass
class Found:
    """One code, wherever it is made."""

    kinds: set[str] = field(default_factory=set)
    is_local: bool = True
    says: dict[str, None] = field(default_factory=dict)
    hints: dict[str, None] = field(default_factory=dict)


def render(root: Path) -> str:
    found = find(root)
    tree = [kind for kind in vars(kinds).values() if isinstance(kind, type) and kind.__base__ is kinds.FieldpostError]
    introduction = INTRODUCTION + "\n".join(
        f"| `{kind.__name__}` | {_first_line(kind.__doc__ or '')} | `{exit_code(_example(kind.__name__, 'a.b'))}` |"
        for kind in tree
    )
    rows = [
        (code(name), f'<a id="{name}"></a>{_kinds(one)}', _statuses(name, one), _lines(one.says), _lines(one.hints))
        for name, one in sorted(found.items())
    ]
    return page("Errors", introduction, table(("code", "kind", "HTTP", "says", "hint"), rows))


def find(root: Path) -> dict[str, Found]:
    found: dict[str, Found] = {}
    for name, module in source.modules(root):
        known = source.constants(module)
        for function, call in _calls(module):
            if source.called(call) in CARRIERS:
                for bindings in _bindings(module, function, known):
                    _note(found, name, function, call, bindings)
    return found


def _note(
    found: dict[str, Found], module: str, function: Function | None, call: ast.Call, known: source.Bindings
) -> None:
    kind, at, says_at = CARRIERS[source.called(call)]
    if source.called(call) == "Refused" and module in CALL_CARRIERS:
        kind = "OperationFailed"
    given = source.argument(call, at, "code")
    says = source.argument(call, says_at, "detail")
    hint = source.argument(call, len(call.args), "hint")
    for name in source.texts(source.assigned(function, given), known):
        # What fails without a dot is a check of the doctor's, told by its name.
        if CODE.fullmatch(name) and ("." in name or source.called(call) != "_failed"):
            one = found.setdefault(name, Found())
            one.kinds.add(kind)
            one.is_local = one.is_local and module.startswith(LOCAL)
            one.says |= dict.fromkeys(filter(None, [source.sentence(says, known).strip()]))
            one.hints |= dict.fromkeys(filter(None, [source.sentence(hint, known).strip()]))


def _calls(module: ast.Module) -> list[tuple[Function | None, ast.Call]]:
    """Each call with the function it stands in, the innermost one."""
    found: list[tuple[Function | None, ast.Call]] = []

    def visit(node: ast.AST, function: Function | None) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node
        if isinstance(node, ast.Call):
            found.append((function, node))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(module, None)
    return found


def _bindings(module: ast.Module, function: Function | None, known: dict[str, str]) -> list[dict[str, str]]:
    """What the names in the function stand for: in a maker of errors once per caller, else what the module says."""
    if function is None or not _only_makes_an_error(function):
        return [known]
    names = [one.arg for one in function.args.args]
    callers = [call for _, call in _calls(module) if source.called(call) == function.name]
    bound = []
    for call in callers:
        given = {name: source.sentence(source.argument(call, place, name), known) for place, name in enumerate(names)}
        bound.append(known | {name: text for name, text in given.items() if text})
    return bound or [known]


def _only_makes_an_error(function: Function) -> bool:
    match function.body[-1]:
        case ast.Return(value=ast.Call() as made):
            return function.name.startswith("_") and source.called(made) in CARRIERS
        case _:
            return False


def _kinds(one: Found) -> str:
    return ", ".join(code(kind) if hasattr(kinds, kind) else kind for kind in sorted(one.kinds))


def _statuses(name: str, one: Found) -> str:
    raised = [kind for kind in one.kinds if hasattr(kinds, kind)]
    return "" if one.is_local else ", ".join(sorted({code(status_of(_example(kind, name))) for kind in raised}))


def _example(kind: str, name: str) -> kinds.FieldpostError:
    made: kinds.FieldpostError = getattr(kinds, kind)(name, "")
    return made


def _lines(texts: dict[str, None]) -> str:
    return "<br>".join(text.replace("<", "&lt;") for text in texts)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0].rstrip(".")
