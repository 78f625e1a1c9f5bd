"""Filter options, derived from the declarations in `core.search.filters` and added to a command by `@filtered`."""

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from fieldpost.core.search.filters import NOTIFICATION_FILTERS, FilterField, FilterKind

BULK_FILTERS = tuple(field for field in NOTIFICATION_FILTERS if field.name not in ("status", "stuck", "overdue"))
"""Filters that select parked notifications for a bulk action."""


def filtered(fields: Sequence[FilterField]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options; it receives the values as `filters`, a mapping without the ones not given."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(**arguments: Any) -> None:
            values = {one.name: arguments.pop(f"filter_{one.name}") for one in fields}
            filters = {
                name: "true" if value is True else value
                for name, value in values.items()
                if value is not None and value is not False and value != []
            }
            command(filters=filters, **arguments)

        own = [one for one in inspect.signature(command).parameters.values() if one.name != "filters"]
        added = [_parameter(one) for one in fields]
        parameters = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in (*(one for one in own if _is_argument(one)), *added, *(p for p in own if not _is_argument(p)))
        ]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _parameter(field: FilterField) -> inspect.Parameter:
    is_flag = field.kind is FilterKind.FLAG
    kind: Any = list[str] | None if field.is_repeatable else bool if is_flag else str | None
    info = typer.Option(f"--{field.name.replace('_', '-')}", help=_help(field))
    return inspect.Parameter(
        f"filter_{field.name}",
        inspect.Parameter.KEYWORD_ONLY,
        default=False if is_flag else None,
        annotation=Annotated[kind, info],
    )


def _help(field: FilterField) -> str:
    choices = f": {', '.join(field.choices)}" if field.choices else ""
    example = ", e.g. 2026-11-15T08:00:00Z" if field.kind is FilterKind.TIME else ""
    return f"{field.help}{choices}{example}.{' Repeatable.' if field.is_repeatable else ''}"


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(type(one).__name__ == "ArgumentInfo" for one in getattr(parameter.annotation, "__metadata__", ()))
