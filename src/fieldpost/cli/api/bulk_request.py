"""What `notifications retry` and `notifications discard` ask of central when it is about more than one."""

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fieldpost.cli.api.bulk_actions import begin
from fieldpost.cli.client import Client
from fieldpost.cli.output import print_json

NotificationIdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="The notifications' ids.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All that is parked, when no filter is given.")]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", help="Why; kept with each notification.", show_default=False)
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be about.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask on the terminal before it begins.")]


@dataclass(frozen=True)
class BulkRequest:
    """One bulk action as it was asked for on the command line."""

    verb: str
    ids: list[str]
    wanted: dict[str, str]
    is_all: bool
    reason: str | None
    is_dry: bool
    is_sure: bool
    in_stages: bool = False

    def carry_out(self, client: Client, as_json: bool) -> None:
        """Count, ask where somebody can be asked, begin and follow; or only count."""
        self._check()
        found = self._count(client)
        if self.is_dry:
            print_json(found) if as_json else print(f"It would {self.verb} {self._said(found)}.")
            return
        if not self.is_sure and sys.stdin.isatty():
            typer.confirm(f"{self.verb.capitalize()} {self._said(found)}?", abort=True, err=True)
        begin(client, self._body(found), as_json)

    def _check(self) -> None:
        if self.ids and (self.wanted or self.is_all):
            raise typer.BadParameter("either ids or a filter, not both")
        if not self.ids and not self.wanted and not self.is_all:
            raise typer.BadParameter("name ids, give a filter, or say --all")
        if not self.reason and not self.is_dry:
            raise typer.BadParameter("it needs a --reason")

    def _count(self, client: Client) -> dict[str, Any]:
        if self.ids:
            return {"count": len(set(self.ids)), "is_whole": True, "as_of": None}
        return client.post("bulk-actions", "preview", body={"filter": self.wanted})

    def _said(self, found: dict[str, Any]) -> str:
        count = found["count"] if found["is_whole"] else f"at least {found['count']}"
        return f"{count} parked notification{'' if count == 1 else 's'}"

    def _body(self, found: dict[str, Any]) -> dict[str, Any]:
        about: dict[str, Any] = {"filter": self.wanted, "as_of": found["as_of"]}
        if self.ids:
            about = {"notifications": [{"notification_id": i} for i in self.ids]}
        return {"verb": self.verb, "reason": self.reason, "in_stages": self.in_stages, **about}
