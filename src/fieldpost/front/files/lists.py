"""Export and import of lists: CSV for spreadsheets, JSON for programs.

A CSV file has one row per target. Each row repeats the properties of its list, and they must agree.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.core.delivery.retry import to_text
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import NotificationList
from fieldpost.front.files.csv_cells import from_cell, to_cell

FILE_BYTES_MAX = 16 * 1024 * 1024
COLUMNS = (
    "list",
    "type",
    "channel",
    "park_uncertain",
    "retry",
    "allowed_sites",
    "severity",
    "rate",
    "target",
    "secret",
)
EXPORTED = COLUMNS[:-1]
"""No export contains a secret."""
_REQUIRED = {"list", "target"}
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}


class ListEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One list in a file."""

    name: str
    targets: list[str]
    type: str = "email"
    channel: str | None = None
    park_uncertain: bool = False
    retry: str | None = None
    allowed_sites: list[str] | None = None
    severity: str | None = None
    rate: str | None = None
    secrets: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """By target; never exported."""


class ListFile(msgspec.Struct, forbid_unknown_fields=True):
    """A JSON file of lists."""

    lists: list[ListEntry]


def to_json(lists: Iterable[NotificationList]) -> str:
    """Write lists as a JSON document that `from_json` reads."""
    found = ListFile(
        [
            ListEntry(
                name=one.name,
                type=one.type,
                channel=one.channel_name,
                park_uncertain=one.park_uncertain,
                retry=to_text(one.retry) if one.retry else None,
                allowed_sites=None if one.allowed_sites is None else list(one.allowed_sites),
                severity=one.severity,
                rate=one.rate.text if one.rate else None,
                targets=list(one.targets),
            )
            for one in lists
        ]
    )
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def from_json(text: str) -> list[ListSpec]:
    """Read lists from a JSON document, or raise InvalidInput naming the place."""
    try:
        found = msgspec.json.decode(text, type=ListFile)
    except msgspec.DecodeError as error:
        raise InvalidInput("import.json", f"invalid file: {error}") from None
    return [
        ListSpec(
            name=one.name,
            type=one.type,
            targets=one.targets,
            channel=one.channel,
            park_uncertain=one.park_uncertain,
            retry=one.retry,
            allowed_sites=one.allowed_sites,
            severity=one.severity,
            rate=one.rate,
            secrets={} if one.secrets is msgspec.UNSET else one.secrets,
            place=f"lists[{number}]",
        )
        for number, one in enumerate(found.lists)
    ]


def to_csv(lists: Iterable[NotificationList]) -> str:
    """Write lists as CSV that `from_csv` reads and that is safe in spreadsheets."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(EXPORTED)
    for one in lists:
        sites = None if one.allowed_sites is None else "|".join(map(_escape, one.allowed_sites))
        properties = (
            one.name,
            one.type,
            one.channel_name or "",
            "true" if one.park_uncertain else "false",
            to_text(one.retry) if one.retry else "",
            sites or "",
            one.severity or "",
            one.rate.text if one.rate else "",
        )
        for target in one.targets:
            writer.writerow([to_cell(value) for value in (*properties, target)])
    return out.getvalue()


def from_csv(text: str) -> list[ListSpec]:
    """Read lists from CSV with `,` or `;` as separator and columns in any order; InvalidInput names the line."""
    text = text.removeprefix("\ufeff")
    head = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ",")
    try:
        columns = _check_columns(next(reader, []))
        found: dict[str, list[ListSpec]] = {}
        for cells in reader:
            if any(cells):
                spec = _spec(columns, cells, f"line {reader.line_num}")
                found.setdefault(spec.name, []).append(spec)
    except csv.Error as error:
        raise InvalidInput("import.csv", f"line {reader.line_num}: {error}", field=f"line {reader.line_num}") from None
    return [_join(specs) for specs in found.values()]


def _check_columns(head: Sequence[str]) -> list[str]:
    columns = [name.strip().lower() for name in head]
    unknown = [name for name in columns if name not in COLUMNS]
    missing = sorted(_REQUIRED.difference(columns))
    if unknown or missing or len(set(columns)) != len(columns):
        what = f"unknown column {unknown[0][:64]!r}" if unknown else f"missing columns: {', '.join(missing)}"
        what = what if unknown or missing else "a column occurs twice"
        raise InvalidInput("import.csv", f"line 1: {what}; valid columns are {', '.join(COLUMNS)}", field="line 1")
    return columns


def _spec(columns: Sequence[str], cells: Sequence[str], place: str) -> ListSpec:
    """Read one row: a list with its properties and one target."""
    if len(cells) != len(columns):
        raise InvalidInput("import.csv", f"{place} has {len(cells)} cells, expected {len(columns)}", field=place)
    row = {name: from_cell(cell) for name, cell in zip(columns, cells, strict=True)}
    park = _BOOLEANS.get(row.get("park_uncertain", "").strip().lower())
    if park is None:
        raise InvalidInput("import.csv", f"{place}: park_uncertain must be true or false", field=place)
    sites = row.get("allowed_sites", "")
    return ListSpec(
        name=row["list"],
        type=row.get("type") or "email",
        channel=row.get("channel") or None,
        park_uncertain=park,
        retry=row.get("retry") or None,
        allowed_sites=[_unescape(site) for site in _SITE.findall(sites)] if sites else None,
        severity=row.get("severity") or None,
        rate=row.get("rate") or None,
        secrets={row["target"]: row["secret"]} if row.get("secret") else {},
        targets=(row["target"],),
        place=place,
    )


def _join(specs: Sequence[ListSpec]) -> ListSpec:
    """Merge the rows of one list; their properties must be equal."""
    first = specs[0]
    for spec in specs[1:]:
        if replace(spec, targets=first.targets, place=first.place, secrets=first.secrets) != first:
            raise InvalidInput(
                "import.csv",
                f"{spec.place}: the properties of the list differ from those in {first.place}",
                field=spec.place,
            )
    return replace(
        first,
        targets=[target for spec in specs for target in spec.targets],
        secrets={label: secret for spec in specs for label, secret in spec.secrets.items()},
        target_places=[f"{spec.place}.target" for spec in specs],
    )


_SITE = re.compile(r"(?:[^|\\]|\\.)+", re.DOTALL)


def _escape(site: str) -> str:
    return site.replace("\\", "\\\\").replace("|", "\\|")


def _unescape(site: str) -> str:
    return re.sub(r"\\(.)", r"\1", site, flags=re.DOTALL)
