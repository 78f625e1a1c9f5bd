"""The command ``fieldpost``."""

import typer

import fieldpost

app = typer.Typer(name="fieldpost", help="Machines at sites notify people over links that fail.", no_args_is_help=True)


def main() -> None:
    app()


@app.callback()
def root() -> None:
    """Machines at sites notify people over links that fail."""


@app.command()
def version() -> None:
    """Print the version of Fieldpost."""
    print(fieldpost.__version__)
