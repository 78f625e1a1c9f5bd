"""The options by which notifications are narrowed, the same for every command that takes them."""

from typing import Annotated

import typer

StatusOption = Annotated[
    list[str] | None,
    typer.Option(help="Only these: pending, retrying, delivered, parked, discarded; repeatable.", show_default=False),
]
TypeOption = Annotated[str | None, typer.Option("--type", help="Only of this type.", show_default=False)]
SiteOption = Annotated[str | None, typer.Option("--site", help="Only of this site.", show_default=False)]
ListOption = Annotated[str | None, typer.Option("--list", help="Only of this list.", show_default=False)]
FromOption = Annotated[
    str | None,
    typer.Option("--from", help="Only what arrived then or later, e.g. 2026-11-15T08:00:00Z.", show_default=False),
]
ToOption = Annotated[str | None, typer.Option("--to", help="Only what arrived before.", show_default=False)]
StuckOption = Annotated[bool, typer.Option("--stuck", help="Only what is stuck.")]
OverdueOption = Annotated[bool, typer.Option("--overdue", help="Only what is overdue.")]
SubjectOption = Annotated[
    str | None, typer.Option("--subject", help="Only with all these words in the subject.", show_default=False)
]
ErrorOption = Annotated[
    str | None,
    typer.Option("--error", help="Only with this error: a key from `notifications groups`.", show_default=False),
]


def fields(
    type_: str | None,
    site: str | None,
    list_name: str | None,
    since: str | None,
    until: str | None,
    subject: str | None,
    error: str | None,
) -> dict[str, str]:
    """The filter as the API has it; what was not given is left out."""
    given = {
        "type": type_,
        "site": site,
        "list": list_name,
        "from": since,
        "to": until,
        "subject": subject,
        "error": error,
    }
    return {name: value for name, value in given.items() if value is not None}
