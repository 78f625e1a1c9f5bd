"""settings.md: every key of fieldpost.toml and site.toml, from the Options dataclasses."""

from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from markdown import code, page, table, value

from fieldpost.run.effective_settings import field_words, variable
from fieldpost.run.settings import DEFAULT_FILE, CentralSettings
from fieldpost.site.config.definitions import SECTIONS, defined_keys
from fieldpost.site.config.folder import OPTIONS as SITE_OPTIONS

INTRODUCTION = f"""\
Made by `make docs` from the `Options` classes in the code.

A central process reads its settings once, at start: first the file given by `--config`, else `./{DEFAULT_FILE}` if
there is one; then the environment, which wins over the file; then the options of the command line, which win over both.
A key that is not on this page, or a value of the wrong kind, stops the start with an error that names it.

Units are in the names: `_s` is seconds."""

SITE = """\
## site.toml

Each site has a folder with a file `site.toml`, which `fieldpost site init` makes. It is read when a script opens the
site and when the agent starts. `[site]` and `[central]` have these keys:"""

SITE_KEYS = (
    ("`site.name`", "required", "The site's name, for people. Central knows the site by its token."),
    ("`central.url`", "required", "Central's address, `http://…` or `https://…`."),
    ("`central.urls`", "", "Further addresses of the same central, a list; then `url` is the first, or left out."),
    ("`central.ca_file`", "", "The authority of central's certificate, where it is your own; relative to the folder."),
)


def render(_root: Path) -> str:
    backend = [_section(section.name, _default(section)) for section in fields(CentralSettings)]
    return page(
        "CentralSettings",
        INTRODUCTION,
        "## fieldpost.toml",
        *backend,
        SITE,
        table(("key", "default", "what it says"), SITE_KEYS),
        *(_site_section(name, kind) for name, kind in SITE_OPTIONS.items()),
        *(_definition(kind, section) for kind, section in SECTIONS.items()),
    )


def _section(name: str, kind: type[Any]) -> str:
    return f"### `[{name}]`\n\n" + table(("key", "environment", "default", "what it says"), _rows(name, kind))


def _site_section(name: str, kind: type[Any]) -> str:
    rows = [(row[0], *row[2:]) for row in _rows(name, kind)]
    return f"### `[{name}]` of a site\n\n" + table(("key", "default", "what it says"), rows)


def _definition(kind: type[Any], section: str) -> str:
    """A section of which there may be many, each under a name of the site's own."""
    words = field_words(kind)
    given = {one.name: one for one in fields(kind)}
    rows = [(code(name), _defined_default(given[name]), words[name]) for name in defined_keys(kind)]
    first = (kind.__doc__ or "").rstrip(".")
    return f"### `[{section}.NAME]` of a site\n\n{first}. {words['name']}\n\n" + table(
        ("key", "default", "what it says"), rows
    )


def _defined_default(one: Field[Any]) -> str:
    if one.default is not MISSING:
        return "" if one.default is None else value(one.default)
    return "required" if one.default_factory is MISSING else "none"


def _rows(section: str, kind: type[Any]) -> list[tuple[str, str, str, str]]:
    words = field_words(kind)
    return [
        (
            code(one.name),
            code(variable(section, one.name)),
            value(one.default),
            words[one.name],
        )
        for one in fields(kind)
    ]


def _default(section: Field[Any]) -> type[Any]:
    assert section.default_factory is not MISSING
    return type(section.default_factory())
