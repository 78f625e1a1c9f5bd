"""local-api.md: what a site's agent serves to programs on its machine, from its table of routes and its structs."""

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Any

from markdown import code, page, table

from fieldpost.site.local import errors
from fieldpost.site.local import schemas as words
from fieldpost.site.local.openapi import document
from fieldpost.site.local.routes import ROUTES

INTRODUCTION = """\
Made by `make docs` from the table of routes (`src/fieldpost/site/local/routes.py`). The agent serves it on the Unix
socket `agent.sock` in the site's folder, without a token, and on 127.0.0.1 if `[local] port` is set, for whoever shows
what `local.token` holds: `Authorization: Bearer TOKEN`. `GET /openapi.json` describes it for tools, to anyone. See
[send from any language](../how-to/send-from-any-language.md).

Bodies and answers are JSON in UTF-8; a field or a query parameter that nobody knows is refused by its name."""

PROBLEMS = """\
## Problems

Every answer that is not a success is `application/problem+json` (RFC 9457) with `status`, a stable `code` (listed in
[errors](errors.md)), a `detail` for people, and where they are known the `field` and a `hint`. A call that was refused
for good also tells its `call_id` and the system's `http_status`."""


def render(_root: Path) -> str:
    described = document()
    rows = []
    for route in ROUTES:
        told = described["paths"][route.path][route.method.lower()]
        takes = _link(route.takes) if route.takes else ", ".join(code(name) for name in route.query)
        rows.append((code(route.method), code(route.path), told["description"], takes, _link(route.gives)))
    schemas = described["components"]["schemas"]
    statuses = [
        (code(kind.__name__), code(f"{prefix}…") if prefix else "any other", code(status))
        for kind, prefix, status in errors.STATUSES
    ]
    return page(
        "The local API of a site",
        INTRODUCTION,
        table(("method", "path", "what", "takes", "gives"), rows),
        "## Bodies and answers",
        *(_shape(getattr(words, name), schema) for name, schema in sorted(schemas.items())),
        PROBLEMS,
        table(("kind", "code", "HTTP status"), statuses),
    )


def _link(kind: type) -> str:
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


def _shape(kind: type, schema: dict[str, Any]) -> str:
    said = {field: text for one in reversed(kind.__mro__) for field, text in _said(one).items()}
    required = schema.get("required", [])
    rows = [
        (code(field), _type(told), "yes" if field in required else "", said.get(field, ""))
        for field, told in schema["properties"].items()
    ]
    doc = " ".join((kind.__doc__ or "").split())
    return f"### {kind.__name__}\n\n{doc}\n\n" + table(("field", "type", "always there", "what it is"), rows)


def _said(kind: type) -> dict[str, str]:
    """What is said of the fields of a struct: the texts that stand below them."""
    if kind.__module__ != words.__name__:
        return {}
    (class_,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(class_, ast.ClassDef)
    found = {}
    for statement, following in zip(class_.body, class_.body[1:], strict=False):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found


def _type(told: dict[str, Any]) -> str:
    if "anyOf" in told:
        return ", ".join(_type(one) for one in told["anyOf"])
    if "$ref" in told:
        name = told["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if told.get("type") == "array":
        return f"list of {_type(told['items'])}"
    return str(told.get("type", "anything"))
