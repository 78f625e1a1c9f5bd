"""Arguments and options that several commands share."""

from typing import Annotated

import typer

SiteArgument = Annotated[str, typer.Argument(metavar="SITE", help="Name of the site.")]
CallIdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the call.")]
NotificationIdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the notification.")]
NotificationIdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of the notifications.")]

LimitOption = Annotated[int, typer.Option(help="Maximum number of rows.")]
CursorOption = Annotated[str | None, typer.Option(help="Continue after a page that ended with this cursor.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Reason, recorded in the audit log.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
FromOption = Annotated[str | None, typer.Option("--from", help="At or after this time, e.g. 2026-11-15T08:00:00Z.")]
ToOption = Annotated[str | None, typer.Option("--to", help="Before this time.")]
RetryPolicyOption = Annotated[
    str | None, typer.Option("--retry", help="Retry policy: fixed:60s:10, schedule:15m,30m,1h or exponential:30s:8.")
]
RateOption = Annotated[
    str | None,
    typer.Option("--rate", help="How many deliveries may start per period, e.g. 20/1m.  [default: of the type]"),
]
DefaultRateOption = Annotated[bool, typer.Option("--default-rate", help="Use the default rate of the type.")]
WaitOption = Annotated[
    float, typer.Option("--wait", help="Seconds to wait for the site's answer; 0 returns at once.", min=0, max=3600)
]
