"""The actions of people and the roles that each requires, read from the code: `require(…)` and `self._begin(…)`."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fieldpost.central
from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.core.actor import Actor, Role
from fieldpost.core.bulk import BulkVerb
from fieldpost.core.events.route import EventRoute
from fieldpost.core.events.template import Template
from fieldpost.core.search.audit_filter import AuditFilter
from fieldpost.core.sites.intent import IntentKind

ROOT = Path(fieldpost.central.__file__).parent
# A role is checked before anything else, so any value of a fitting type will do.
VALUES: dict[str, Any] = {
    "str": "0198c8a0-0000-7000-8000-000000000001",
    "int": 1,
    "Role": Role.VIEWER,
    "BulkVerb": BulkVerb.RETRY,
    "IntentKind": IntentKind.RETRY,
    "AuditFilter": AuditFilter(),
    "EventRoute": EventRoute(route_id="", name="r", filter=(), list_name="l"),
    "Template": Template(topic="t", subject="s", body="b"),
    "ListSpec": ListSpec(name="l", targets=["a@example.org"]),
}


@dataclass(frozen=True)
class Action:
    """A public method that a person calls; `role` and `name` are None if it requires no role."""

    kind: type
    method: str
    role: Role | None
    name: str | None
    others: tuple[Role, ...] = ()
    """Roles outside the order that may do it as well, limited to their own."""

    def is_for(self, role: Role) -> bool:
        return any(role.includes(one) for one in (self.role, *self.others) if one is not None)

    def __str__(self) -> str:
        return f"{self.kind.__name__}.{self.method}"

    def call(self, of: object, actor: Actor) -> Any:
        """Call it as this actor, with made-up values."""
        given = {}
        for name, parameter in inspect.signature(getattr(self.kind, self.method)).parameters.items():
            if name not in ("self", "actor") and parameter.default is inspect.Parameter.empty:
                given[name] = VALUES.get(getattr(parameter.annotation, "__name__", ""), [])
        return getattr(of, self.method)(actor, **given)


def all_actions() -> list[Action]:
    """The actions of `central.operate` and `central.access`."""
    files = sorted(file for folder in ("operate", "access") for file in (ROOT / folder).glob("*.py"))
    return [action for file in files for action in _actions(file)]


def _actions(file: Path) -> Iterator[Action]:
    module = importlib.import_module(f"fieldpost.central.{file.parent.name}.{file.stem}")
    for found in ast.parse(file.read_text()).body:
        if isinstance(found, ast.ClassDef) and any(ast.unparse(base) == "Actions" for base in found.bases):
            methods = {one.name: one for one in found.body if isinstance(one, ast.AsyncFunctionDef | ast.FunctionDef)}
            for name, method in methods.items():
                if not name.startswith("_") and any(one.arg == "actor" for one in method.args.args):
                    role, action, others = _required(method, methods) or (None, None, ())
                    yield Action(getattr(module, found.name), name, role, action, others)


def _required(method: ast.AST, methods: dict[str, Any]) -> tuple[Role, str, tuple[Role, ...]] | None:
    """The role, action and other roles of the first check in this method, or in the private methods that it calls."""
    for node in ast.walk(method):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if called in ("require", "_begin"):
            _, role, action = node.args[:3]
            others = [_role(one) for one in node.args[3:]] if called == "require" else []
            return _role(role), _text(action), tuple(others)
        if called.startswith("_") and called in methods and (found := _required(methods[called], methods)):
            return found
    return None


def _role(given: ast.expr) -> Role:
    assert isinstance(given, ast.Attribute), ast.unparse(given)
    return Role[given.attr]


def _text(action: ast.expr) -> str:
    """`bulk.` for an action whose verb varies."""
    if isinstance(action, ast.JoinedStr):
        action = action.values[0]
    assert isinstance(action, ast.Constant)
    return str(action.value)
