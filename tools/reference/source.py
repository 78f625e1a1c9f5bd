"""Read the source as syntax trees and extract the strings passed to calls, with named placeholders."""

import ast
from functools import cache
from pathlib import Path

Bindings = dict[str, str]  # known values of names


@cache
def modules(root: Path) -> list[tuple[str, ast.Module]]:
    """Each module by its path below src/fieldpost, without `testing` and migrations."""
    source = root / "src/fieldpost"
    names = [path.relative_to(source).as_posix() for path in sorted(source.rglob("*.py"))]
    return [
        (name, ast.parse((source / name).read_text(encoding="utf-8"), name))
        for name in names
        if not name.startswith(("testing/", "central/store/schema/migrations/"))
    ]


def constants(module: ast.Module) -> Bindings:
    """String and number constants of the module."""
    found = {}
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str() | int() | float() as value)):
                found[name] = f"{value:g}" if isinstance(value, float) else str(value)
            case _:
                pass
    return found


def called(call: ast.Call) -> str:
    """The name of the called function, without the part before the dot."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    if len(call.args) > position:
        return call.args[position]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def assigned(function: ast.FunctionDef | ast.AsyncFunctionDef | None, node: ast.expr | None) -> ast.expr | None:
    """The value assigned to a name in the function, or the node itself."""
    if function is not None and isinstance(node, ast.Name):
        for statement in ast.walk(function):
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == node.id:
                    return value
    return node


def texts(node: ast.expr | None, known: Bindings) -> list[str]:
    """All string values the expression may have; empty if it is not a string."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Name(id=name) if name in known:
            return [known[name]]
        case ast.BoolOp(values=values):
            return [text for one in values for text in texts(one, known) if text]
        case ast.JoinedStr(values=values):
            parts = [texts(one.value if isinstance(one, ast.FormattedValue) else one, known) for one in values]
            return ["".join(part[0] for part in parts)] if all(parts) else []
        case ast.IfExp(body=body, orelse=other):
            return texts(body, known) + texts(other, known)
        case ast.Call(func=ast.Attribute(value=ast.Dict(values=values), attr="get"), args=args):
            return [text for one in (*values, *args[1:]) for text in texts(one, known)]
        case _:
            return []


def sentence(node: ast.expr | None, known: Bindings) -> str:
    """The message; values known only at run time are shown by name, or as …."""
    match node:
        case ast.JoinedStr(values=values):
            return "".join(sentence(one, known) for one in values)
        case ast.FormattedValue(value=value):
            return _placeholder(value, known)
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return sentence(left, known) + sentence(right, known)
        case ast.BoolOp(values=values):
            return sentence(values[-1], known)
        case None:
            return ""
        case _:
            return _placeholder(node, known)


def _placeholder(node: ast.expr, known: Bindings) -> str:
    found = texts(node, known)
    if found:
        return found[0]
    match node:
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)) if name.islower():
            return f"*{name.strip('_').replace('_', ' ')}*"
        case ast.Attribute(attr=name, value=ast.Name(id="self")):
            return f"*{name.strip('_').replace('_', ' ')}*"
        case _:
            return "…"
