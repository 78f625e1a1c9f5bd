"""Lists as files, to be taken out, looked through elsewhere and put back: CSV for spreadsheets, JSON for programs.

A CSV file has one row for each target, with the list's properties repeated on each; they must agree.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import NotificationList
from fieldpost.core.retry import to_text
from fieldpost.front.files.csv_cells import from_cell, to_cell

FILE_BYTES_MAX = 16 * 1024 * 1024
COLUMNS = ("list", "type", "channel", "park_uncertain", "retry", "allowed_sites", "target")
_REQUIRED = {"list", "target"}
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}


class ListEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One list in a file."""

    name: str
    targets: list[str]
    type: str = "email"
    channel: str | None = None
    park_uncertain: bool = False
    retry: str | None = None
    allowed_sites: list[str] | None = None


class ListFile(msgspec.Struct, forbid_unknown_fields=True):
    """What a JSON file of lists holds."""

    lists: list[ListEntry]


def to_json(lists: Iterable[NotificationList]) -> str:
    """All of them as one JSON document that `from_json` reads."""
    found = ListFile(
        [
            ListEntry(
                name=one.name,
                type=one.type,
                channel=one.channel_name,
                park_uncertain=one.park_uncertain,
                retry=to_text(one.retry) if one.retry else None,
                allowed_sites=None if one.allowed_sites is None else list(one.allowed_sites),
                targets=list(one.targets),
            )
            for one in lists
        ]
    )
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def from_json(text: str) -> list[ListSpec]:
    """The lists of a JSON document, or InvalidInput saying where it is none."""
    try:
        found = msgspec.json.decode(text, type=ListFile)
    except msgspec.DecodeError as error:
        raise InvalidInput("import.json", f"the file does not fit: {error}") from None
    return [
        ListSpec(
            name=one.name,
            type=one.type,
            targets=one.targets,
            channel=one.channel,
            park_uncertain=one.park_uncertain,
            retry=one.retry,
            allowed_sites=one.allowed_sites,
            place=f"lists[{number}]",
        )
        for number, one in enumerate(found.lists)
    ]


def to_csv(lists: Iterable[NotificationList]) -> str:
    """All of them as CSV that `from_csv` reads and a spreadsheet runs nothing of."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for one in lists:
        sites = None if one.allowed_sites is None else "|".join(map(_escape, one.allowed_sites))
        properties = (
            one.name,
            one.type,
            one.channel_name or "",
            "true" if one.park_uncertain else "false",
            to_text(one.retry) if one.retry else "",
            sites or "",
        )
        for target in one.targets:
            writer.writerow([to_cell(value) for value in (*properties, target)])
    return out.getvalue()


def from_csv(text: str) -> list[ListSpec]:
    """The lists of a CSV file, or InvalidInput naming the line. Columns may be in any order; `,` or `;` parts them."""
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
        what = f"there is no column {unknown[0][:64]!r}" if unknown else f"the columns {', '.join(missing)} are needed"
        what = what if unknown or missing else "a column stands there twice"
        raise InvalidInput("import.csv", f"line 1: {what}; known are {', '.join(COLUMNS)}", field="line 1")
    return columns


def _spec(columns: Sequence[str], cells: Sequence[str], place: str) -> ListSpec:
    """What one row says: a list with its properties, and one target of it."""
    if len(cells) != len(columns):
        raise InvalidInput("import.csv", f"{place} has {len(cells)} cells, not {len(columns)}", field=place)
    row = {name: from_cell(cell) for name, cell in zip(columns, cells, strict=True)}
    park = _TRUTHS.get(row.get("park_uncertain", "").strip().lower())
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
        targets=(row["target"],),
        place=place,
    )


def _join(specs: Sequence[ListSpec]) -> ListSpec:
    """The rows of one list as one; its properties must be the same on each."""
    first = specs[0]
    for spec in specs[1:]:
        if replace(spec, targets=first.targets, place=first.place) != first:
            raise InvalidInput(
                "import.csv",
                f"{spec.place}: the properties of the list differ from those in {first.place}",
                field=spec.place,
            )
    return replace(
        first,
        targets=[target for spec in specs for target in spec.targets],
        target_places=[f"{spec.place}.target" for spec in specs],
        place="",
    )


_SITE = re.compile(r"(?:[^|\\]|\\.)+", re.DOTALL)


def _escape(site: str) -> str:
    return site.replace("\\", "\\\\").replace("|", "\\|")


def _unescape(site: str) -> str:
    return re.sub(r"\\(.)", r"\1", site, flags=re.DOTALL)
