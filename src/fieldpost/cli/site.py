"""What acts on this machine's site folder: `fieldpost site` runs its agent; `send` and `status` are for scripts."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldpost.cli import site_buffer
from fieldpost.cli.site_buffer import FolderOption

if TYPE_CHECKING:
    from fieldpost.site.notify import NotificationStatus

app = typer.Typer(
    help="Run the agent of this machine's site, set a site up, or take care of its buffer.", invoke_without_command=True
)
app.command()(site_buffer.doctor)
app.command()(site_buffer.export)
app.command("import")(site_buffer.import_)
app.command()(site_buffer.compact)
app.command()(site_buffer.salvage)


@app.callback()
def run(
    context: typer.Context,
    folder: FolderOption = Path(),
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="Log lines as JSON.")] = False,
) -> None:
    """Run the agent of this machine's site: it forwards what scripts have buffered. Ctrl-C stops it."""
    if context.invoked_subcommand is not None:
        return
    import asyncio

    from fieldpost.run import logs
    from fieldpost.run.site import run_site

    logs.configure(log_level, json=log_json)
    asyncio.run(run_site(folder))


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to make.")],
    name: Annotated[str, typer.Option("--name", help="The site's name.")],
    central: Annotated[str, typer.Option("--central", help="Central's address, http:// or https://.")],
    token_file: Annotated[
        Path | None, typer.Option(help="The file that holds the site's token; - reads it from standard input.")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="The authority of central's certificate, if it is your own.")
    ] = None,
) -> None:
    """Set up a site's folder. The token comes from --token-file or from FIELDPOST_SITE_TOKEN, or is asked for.

    At central, `fieldpost sites add NAME` prints the token, once.
    """
    from fieldpost.site.site import Site

    with Site.create(folder, name, central, _read_token(token_file), ca_file=ca_file) as site:
        print(f"The site {site.name} is set up in {folder}.")
        print(f"Run its agent:    fieldpost site --folder {folder}")
        print(f'Send from there:  fieldpost send --folder {folder} --to LIST --subject "…" "…"')


def send(
    to: Annotated[str, typer.Option("--to", help="The list to notify.")],
    subject: Annotated[str, typer.Option("--subject", "-s", help="One line.")],
    body: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")] = "",
    folder: FolderOption = Path(),
    instance: Annotated[str | None, typer.Option(help="Which machine or unit it is about.")] = None,
    script: Annotated[str | None, typer.Option(help="Which script sends it.")] = None,
) -> None:
    """Send a notification from this site and print its id. It is on disk when this ends; the agent forwards it."""
    from fieldpost.site.site import Site

    with Site.open(folder) as site:
        text = _read_stdin() if body == "-" else body
        print(site.notify.to(to).send(subject, text, instance=instance, script=script))


def status(
    notification_id: Annotated[str, typer.Argument(metavar="ID", help="The id that send printed.")],
    folder: FolderOption = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="The whole record as JSON.")] = False,
) -> None:
    """Say where a notification of this site stands."""
    from fieldpost.site.site import Site

    with Site.open(folder) as site:
        answer = site.notify.status(notification_id)
    print(json.dumps(_record(answer)) if as_json else _sentence(answer))


def _record(answer: "NotificationStatus") -> dict[str, object]:
    from fieldpost.core.times import to_text

    times = {name: getattr(answer, name) for name in ("enqueued_at", "delivered_at", "next_attempt_at")}
    return {
        "notification_id": answer.notification_id,
        "status": answer.status,
        "retry_count": answer.retry_count,
        "last_error": answer.last_error,
        **{name: None if moment is None else to_text(moment) for name, moment in times.items()},
    }


def _sentence(answer: "NotificationStatus") -> str:
    from fieldpost.core.times import to_text

    parts: list[str] = [answer.status]
    if answer.delivered_at is not None:
        parts.append(f"at {to_text(answer.delivered_at)}")
    if answer.retry_count:
        parts.append(f"after {answer.retry_count} failed {'try' if answer.retry_count == 1 else 'tries'}")
    if answer.next_attempt_at is not None:
        parts.append(f"next try at {to_text(answer.next_attempt_at)}")
    line = ", ".join(parts)
    return f"{line}: {answer.last_error}" if answer.last_error else line


def _read_stdin() -> str:
    from fieldpost.core.errors import InvalidInput
    from fieldpost.core.text import BODY_BYTES_MAX

    # One byte beyond the limit is enough for the check that follows.
    data = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(data) > BODY_BYTES_MAX and error.start > BODY_BYTES_MAX - 4:
            return data.decode("utf-8", "replace")
        raise InvalidInput("text.not_utf8", f"body is not UTF-8 at byte {error.start}", field="body") from None


def _read_token(token_file: Path | None) -> str:
    import os

    from fieldpost.core.errors import ConfigError

    if token_file is not None and str(token_file) == "-":
        return sys.stdin.readline()
    if token_file is not None:
        try:
            return token_file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("site.token", f"the token file cannot be read: {error}") from None
    if token := os.environ.get("FIELDPOST_SITE_TOKEN"):
        return token
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass("The site's token: ")
    raise ConfigError("site.no_token", "no token was given", hint="use --token-file or FIELDPOST_SITE_TOKEN")
