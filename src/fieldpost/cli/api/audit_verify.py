"""`fieldpost audit verify`: checks the audit log against its seals."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import print_json
from fieldpost.core.errors import InvalidInput
from fieldpost.core.quantities import plural

TAMPERED = 9
"""The exit code when the log is not as it was sealed."""

VerifiedPart = dict[str, Any]


def verify(
    since: Annotated[
        str | None, typer.Option(help="Start with the entries sealed at this time or later: 2026-11-15T08:00:00Z.")
    ] = None,
    heads: Annotated[
        Path | None,
        typer.Option(help="A copy of the heads file: also finds a database that was replaced by an older copy."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="A database file or URL to verify without central; needs --public-key."),
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option(help="A file with the output of `fieldpost audit public-keys`.")
    ] = None,
    retention_days: Annotated[
        float, typer.Option(help="With --store: the audit_retention_days of that central.")
    ] = 365.0,
) -> None:
    """Verify that no sealed audit entry was edited, removed, inserted or reordered.

    The leading node seals new entries every 10 seconds, in batches that are linked by hashes and signed. The exit code
    is 9 if the log is not as it was sealed, else 0. Needs the role admin, or with --store access to the database.
    """
    kept, replaced = _read_heads(heads) if heads else ({}, None)
    if (store is None) != (public_key is None):
        raise InvalidInput("cli.both", "--store and --public-key belong together", field="--store")
    pieces = _from_api(since) if store is None else _from_store(store, public_key, retention_days, since)
    findings: list[dict[str, Any]] = []
    entries = batches = 0
    piece: VerifiedPart = {"last_batch": 0, "unsealed": 0}
    for piece in pieces:
        findings += piece["findings"]
        for head in piece["heads"]:
            if kept.get(head["number"], head["head"]) != head["head"]:
                findings.append(_finding("batch_edited", head["number"], "differs from the heads file"))
        entries += piece["entries"]
        batches += len(piece["heads"])
        if sys.stderr.isatty() and not is_json():
            print(f"\r{entries:,} entries", end="", file=sys.stderr, flush=True)
        if findings:
            break
    if replaced is not None:
        text = (
            f"the heads file has two heads of batch {replaced}: the database was replaced by an older copy, or its end "
            "was removed, and sealed again"
        )
        findings.append({"kind": "cut_off", "batch": replaced, "sequence": None, "event_id": None, "text": text})
    elif not findings and max(kept, default=0) > piece["last_batch"]:
        text = f"the database ends at batch {piece['last_batch']}, before batch {max(kept)} of the heads file"
        findings.append({"kind": "cut_off", "batch": max(kept), "sequence": None, "event_id": None, "text": text})
    if sys.stderr.isatty() and not is_json():
        print("\r", end="", file=sys.stderr)
    _report(findings, entries, batches, piece["unsealed"])
    if findings:
        raise typer.Exit(TAMPERED)


def public_keys() -> None:
    """Print the public keys that verify the seals of the audit log. Keep them on another machine."""
    answer = central().get("audit/public-keys")
    if is_json():
        print_json(answer)
    else:
        print(*answer["public_keys"], sep="\n")


def _report(findings: list[dict[str, Any]], entries: int, batches: int, unsealed: int) -> None:
    if is_json():
        print_json({"findings": findings, "entries": entries, "batches": batches, "unsealed": unsealed})
        return
    if findings:
        print("The audit log is not as it was sealed:")
        for one in findings:
            about = f" (event {one['event_id']})" if one["event_id"] else ""
            print(f"  {one['kind'].replace('_', ' ')}: {one['text']}{about}")
    else:
        print(f"Verified {plural(entries, 'entry')} in {plural(batches, 'batch')}: nothing was changed.")
    print(f"Not sealed yet: {plural(unsealed, 'entry')}.")


def _from_api(since: str | None) -> Iterator[VerifiedPart]:
    client = central()
    piece = client.get("audit/verification", since=since) if since else client.get("audit/verification")
    yield piece
    while piece["next_batch"] is not None:
        piece = client.get("audit/verification", from_batch=piece["next_batch"])
        yield piece


def _from_store(
    store: str, public_key: Path | None, retention_days: float, since: str | None
) -> Iterator[VerifiedPart]:
    import asyncio
    from dataclasses import asdict
    from datetime import timedelta

    from fieldpost.core.times import from_text
    from fieldpost.run.audit_file import verify_store

    at = None if since is None else from_text(since)
    if since is not None and at is None:
        raise InvalidInput("query.moment", "since must be a time with its zone", field="--since")
    assert public_key is not None, "checked by the caller"
    pieces = verify_store(store, _read_keys(public_key), timedelta(days=retention_days), at)
    with asyncio.Runner() as runner:
        while True:
            try:
                yield asdict(runner.run(_next(pieces)))
            except StopAsyncIteration:
                return


async def _next(pieces: Any) -> Any:
    return await anext(pieces)


def _read_keys(file: Path) -> list[bytes]:
    keys = []
    for number, line in enumerate(_lines(file, "--public-key"), 1):
        try:
            key = bytes.fromhex(line)
        except ValueError:
            key = b""
        if len(key) != 32:
            raise InvalidInput("cli.file", f"line {number} of {file} is not a public key in hex", field="--public-key")
        keys.append(key)
    return keys


def _read_heads(file: Path) -> tuple[dict[int, str], int | None]:
    """The heads by number, and the first number with two heads. A torn last line, after a power cut, is skipped."""
    found: dict[int, str] = {}
    replaced = []
    lines = _lines(file, "--heads")
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if len(parts) == 3 and parts[0].isdecimal() and len(parts[1]) == 64:
            if found.setdefault(int(parts[0]), parts[1]) != parts[1]:
                replaced.append(int(parts[0]))
        elif number < len(lines):
            raise InvalidInput("cli.file", f"line {number} of {file} is not `number head time`", field="--heads")
    return found, min(replaced, default=None)


def _lines(file: Path, option: str) -> list[str]:
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise InvalidInput("cli.file", f"cannot read {file}: {reason}", field=option) from None


def _finding(kind: str, batch: int, text: str) -> dict[str, Any]:
    return {"kind": kind, "batch": batch, "sequence": None, "event_id": None, "text": f"batch {batch} {text}"}
