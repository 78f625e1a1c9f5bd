"""`fieldpost site`: run the agent, set up a site, and commands on the site's folder."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fieldpost.cli.local import join, pair, site_buffer, site_messages
from fieldpost.cli.local.agent import run_agent
from fieldpost.cli.local.site_buffer import SiteFolderOption, pass_folder_on
from fieldpost.cli.options import is_json
from fieldpost.cli.output import print_json

app = typer.Typer(help="Run the agent of a site, set up a site, or maintain its buffer.", invoke_without_command=True)
app.command()(join.join)
app.command()(site_messages.status)
app.command()(site_messages.events)
app.command()(site_messages.parked)
app.command()(site_messages.retry)
app.command()(site_messages.discard)
app.add_typer(site_messages.rejected, name="rejected")
app.add_typer(pair.app, name="pair")
app.command()(pair.demote)
app.command()(pair.promote)
app.command()(site_buffer.doctor)
app.command()(site_buffer.export)
app.command("import")(site_buffer.import_)
app.command()(site_buffer.compact)
app.command()(site_buffer.salvage)


@app.callback()
def run(
    context: typer.Context,
    folder: SiteFolderOption = Path(),
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="Log in JSON.")] = False,
) -> None:
    """Run the agent of a site: forward buffered messages to central. Ctrl-C stops it."""
    if context.invoked_subcommand is not None:
        pass_folder_on(context, folder)
        return
    run_agent(folder, log_level, log_json)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Folder to create.")],
    name: Annotated[str, typer.Option("--name", help="Name of the site.")],
    central: Annotated[str, typer.Option("--central", help="Address of central, https:// (http:// on this machine)")],
    token_file: Annotated[Path | None, typer.Option(help="File with the site's token; - reads it from stdin.")] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="CA certificate, if central uses a certificate authority of your own.")
    ] = None,
    allow_plain: Annotated[
        bool, typer.Option("--allow-plain", help="Send the token over plain HTTP, in a network that you trust.")
    ] = False,
) -> None:
    """Set up a site with a token from --token-file, FIELDPOST_SITE_TOKEN or the terminal.

    At central, `fieldpost sites add NAME --print-token` prints the token once. `site join` uses an invitation instead.
    """
    from fieldpost.site.site import Site

    token = _read_token(token_file)
    with Site.create(folder, name, central, token, ca_file=ca_file, allow_plain=allow_plain) as site:
        if is_json():
            print_json({"site": site.name, "folder": str(folder)})
            return
        print(f"Set up site {site.name} in {folder}.")
        print(f"Run the agent:        fieldpost site --folder {folder}")
        print(f'Send a notification:  fieldpost send --folder {folder} --to LIST --subject "…" "…"')


def _read_token(token_file: Path | None) -> str:
    import os

    from fieldpost.core.errors import ConfigError

    if token_file is not None and str(token_file) == "-":
        return sys.stdin.readline()
    if token_file is not None:
        try:
            return token_file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("site.token", f"cannot read the token file: {error}") from None
    if token := os.environ.get("FIELDPOST_SITE_TOKEN"):
        return token
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass("Token of the site: ")
    raise ConfigError("site.no_token", "no token given", hint="use --token-file or FIELDPOST_SITE_TOKEN")
