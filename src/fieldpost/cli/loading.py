"""Commands that are loaded when they are asked for: who runs `fieldpost send` in a script waits for no other."""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup


class CommandsOnDemand(TyperGroup):
    """A group whose commands are imported when they are asked for."""

    places: ClassVar[dict[str, str]]
    """Where each command is: a module of this package, and in it a function or a group of further commands."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _OnDemand(self.places, self.commands)


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
        raise TypeError("a command is not taken away")

    def __iter__(self) -> Iterator[str]:
        return iter({**self._places, **self._loaded})

    def __len__(self) -> int:
        return len({**self._places, **self._loaded})


def _load(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"fieldpost.cli.{module}"), attribute)
    group = typer.Typer()
    if isinstance(found, typer.Typer):
        group.add_typer(found, name=name)
    else:
        group.command(name)(found)
    return typer.main.get_group(group).commands[name]
