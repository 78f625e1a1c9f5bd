"""`fieldpost site`: runs the agent of this machine's site, or sets a site up; what acts on its folder is here too."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fieldpost.cli.local import join, site_buffer, site_messages
from fieldpost.cli.local.site_buffer import SiteFolderOption, pass_folder_on
from fieldpost.cli.output import JsonOption, print_json

app = typer.Typer(
    help="Run the agent of this machine's site, set a site up, or take care of its buffer.", invoke_without_command=True
)
app.command()(join.join)
app.command()(site_messages.status)
app.command()(site_messages.events)
app.command()(site_messages.parked)
app.command()(site_messages.retry)
app.command()(site_messages.discard)
app.add_typer(site_messages.rejected, name="rejected")
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
    log_json: Annotated[bool, typer.Option("--log-json", help="Log lines as JSON.")] = False,
) -> None:
    """Run the agent of this machine's site: it forwards what scripts have buffered. Ctrl-C stops it."""
    if context.invoked_subcommand is not None:
        pass_folder_on(context, folder)
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
    as_json: JsonOption = False,
) -> None:
    """Set up a site's folder. The token comes from --token-file or from FIELDPOST_SITE_TOKEN, or is asked for.

    At central, `fieldpost sites add NAME --print-token` prints it, once. To be invited instead, see `site join`.
    """
    from fieldpost.site.site import Site

    with Site.create(folder, name, central, _read_token(token_file), ca_file=ca_file) as site:
        if as_json:
            print_json({"site": site.name, "folder": str(folder)})
            return
        print(f"The site {site.name} is set up in {folder}.")
        print(f"Run its agent:    fieldpost site --folder {folder}")
        print(f'Send from there:  fieldpost send --folder {folder} --to LIST --subject "…" "…"')


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
