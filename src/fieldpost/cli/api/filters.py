"""Filter options: declared once per noun, added to a command's signature by `@filtered`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer


@dataclass(frozen=True, slots=True)
class FilterOption:
    """One filter: the API's query parameter and the option `--name`."""

    name: str
    help: str
    kind: type = str
    """`str`, `list` for a repeatable option, or `bool` for a flag."""
    metavar: str | None = None


FROM = FilterOption("from", "Arrived at or after this time, e.g. 2026-11-15T08:00:00Z.")
TO = FilterOption("to", "Arrived before this time.")

BULK_FILTERS = (
    FilterOption("type", "Only this type, e.g. email."),
    FilterOption("site", "Only from this site."),
    FilterOption("list", "Only to this list."),
    FROM,
    TO,
    FilterOption("subject", "Only subjects that contain all these words."),
    FilterOption("error", "Only this error: a key from `notifications groups`."),
)
NOTIFICATION_FILTERS = (
    FilterOption("status", "Only this status: pending, retrying, delivered, parked, discarded. Repeatable.", list),
    *BULK_FILTERS,
    FilterOption("stuck", "Only stuck notifications.", bool),
    FilterOption("overdue", "Only overdue notifications.", bool),
)
CALL_FILTERS = (
    FilterOption("site", "Only of this site."),
    FilterOption(
        "status", "Only this status: pending, retrying, delivered, parked, failed, discarded. Repeatable.", list
    ),
    FilterOption("category", "external_call or database_write."),
    FilterOption("target", "Only targets that contain these words."),
    FilterOption("from", "Created at or after this time."),
    FilterOption("to", "Created before this time."),
    FilterOption("stuck", "Only stuck calls.", bool),
)
INTENT_FILTERS = (
    FilterOption("site", "Only for this site."),
    FilterOption("state", "Only this state: waiting, sent, done, cancelled, expired. Repeatable.", list),
)
AUDIT_FILTERS = (
    FilterOption("from", "At or after this time, e.g. 2026-11-15T08:00:00Z."),
    FilterOption("to", "Before this time."),
    FilterOption("kind", "Only this kind: operator_action, notify_send, notify_deliver, … Repeatable.", list),
    FilterOption(
        "status", "Only this status: submitted, attempted, delivered, failed, parked, discarded, … Repeatable.", list
    ),
    FilterOption("channel", "notification, api_inbound, api_outbound or db_outbound."),
    FilterOption("actor", "Only actions of this user or program."),
    FilterOption("target", "Only actions on this list, channel, site or user."),
    FilterOption("site", "Only entries from this site."),
    FilterOption("about", "Only about this notification, cached call or bulk action.", metavar="ID"),
)


def filtered(options: tuple[FilterOption, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options; it receives the values as `filters`, a mapping without the ones not given."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(**arguments: Any) -> None:
            values = {one.name: arguments.pop(f"filter_{one.name}") for one in options}
            filters = {
                name: "true" if value is True else value
                for name, value in values.items()
                if value is not None and value is not False and value != []
            }
            command(filters=filters, **arguments)

        own = [one for one in inspect.signature(command).parameters.values() if one.name != "filters"]
        added = [_parameter(one) for one in options]
        parameters = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in (*(one for one in own if _is_argument(one)), *added, *(p for p in own if not _is_argument(p)))
        ]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _parameter(option: FilterOption) -> inspect.Parameter:
    kind: Any = list[str] | None if option.kind is list else bool if option.kind is bool else str | None
    info = typer.Option(f"--{option.name}", help=option.help, metavar=option.metavar, show_default=False)
    default = False if option.kind is bool else None
    return inspect.Parameter(
        f"filter_{option.name}", inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(type(one).__name__ == "ArgumentInfo" for one in getattr(parameter.annotation, "__metadata__", ()))
