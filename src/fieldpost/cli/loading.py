"""Commands that are imported when they are used, so that `fieldpost send` in a script pays for no other."""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from fieldpost.cli.options import add_shared_options


class CommandsOnDemand(TyperGroup):
    """A command group that imports each command when it is used."""

    places: ClassVar[dict[str, str]]
    """Command name to `module:attribute` in this package; the attribute is a function or a Typer application."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for command in self.commands.values():
            add_shared_options(command, "as_json")
        self.commands = _OnDemand(self.places, self.commands)
        add_shared_options(self, "url", "token_file", "as_json")


class _OnDemand(MutableMapping[str, Any]):
    def __init__(self, places: dict[str, str], loaded: MutableMapping[str, Any]) -> None:
        self._places = places
        self._loaded = dict(loaded)

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._places[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter({**self._places, **self._loaded})

    def __len__(self) -> int:
        return len({**self._places, **self._loaded})


PROCESSES = ("central", "demo", "relay", "site")
"""Commands that run until they are stopped; they log and have no result to print as JSON."""
FILES = ("lists export", "audit export")
"""Commands that write a file; --format selects its format."""
OFFLINE = ("listen", "logout", "profiles", "secrets new-key")
"""Commands beside those over the API that send no request by the shared options."""


def _load(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"fieldpost.cli.{module}"), attribute)
    group = typer.Typer()
    if isinstance(found, typer.Typer):
        group.add_typer(found, name=name)
    else:
        group.command(name)(found)
    command = typer.main.get_group(group).commands[name]
    _share(command, name, is_remote=module.startswith("api.") or name == "doctor")
    return command


def _share(command: Any, path: str, *, is_remote: bool) -> None:
    """Add the shared options to a command and the commands below it."""
    below = getattr(command, "commands", {})
    for name, one in below.items():
        _share(one, f"{path} {name}", is_remote=is_remote)
    if path in PROCESSES or (below and not command.invoke_without_command):
        return
    connection = ("url", "token_file") if is_remote and path not in OFFLINE else ()
    add_shared_options(command, *connection, *(() if path in FILES else ("as_json",)))
