"""Filters of the list of notifications."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache

from fieldpost.core.errors import InvalidInput
from fieldpost.core.kpi import Thresholds
from fieldpost.core.notification import LIVE, Status
from fieldpost.core.search.fingerprint import fingerprint_key, is_fingerprint_key
from fieldpost.core.search.tokens import TOKENS_MAX, tokenize
from fieldpost.core.text import check_label, check_subject
from fieldpost.core.times import from_text, to_text

FIELDS = ("status", "type", "site", "list", "from", "to", "stuck", "overdue", "subject", "error")
"""What a filter is called by in queries, forms and stored acts; only `status` may be given more than once."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|\+00:00)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which notifications are asked for; what is not given is not filtered by. Made by `parse` from what people say."""

    statuses: tuple[Status, ...] = ()
    type: str | None = None
    site: str | None = None
    list_name: str | None = None
    since: datetime | None = None
    """Arrived at central at this moment or later."""
    until: datetime | None = None
    """Arrived before this moment."""
    is_stuck: bool = False
    is_overdue: bool = False
    overdue_before: datetime | None = None
    """Free to be taken since before this moment, and not taken: what `resolved` makes of `is_overdue`."""
    subject: str | None = None
    """Words that the subject must hold."""
    error_key: str | None = None
    """The key of a group of errors (`fingerprint_key`); of parked ones, unless other statuses are asked for."""

    @property
    def words(self) -> tuple[str, ...]:
        return tokenize(self.subject) if self.subject is not None else ()

    def fits_text(self, subject: str, error: str | None) -> bool:
        """Whether subject and error fit: what no database judges, so that all judge alike."""
        if self.subject is not None and not _words_of(self.subject) <= set(tokenize(subject)):
            return False
        return self.error_key is None or (error is not None and fingerprint_key(error) == self.error_key)

    def resolved(self, now: datetime, by: Thresholds) -> "Filter | None":
        """The same without `is_stuck` and `is_overdue`, as statuses and times; None when nothing at all can fit."""
        if not self.is_stuck and not self.is_overdue:
            return replace(self, statuses=self.statuses or ((Status.PARKED,) if self.error_key is not None else ()))
        live = tuple(status for status in self.statuses or Status if status in LIVE)
        if not live:
            return None
        stuck_before = now - by.stuck_after if self.is_stuck else None
        overdue_before = now - by.overdue_after if self.is_overdue else None
        # What is overdue has arrived before it could be taken.
        until = min(at for at in (self.until, stuck_before, overdue_before) if at is not None)
        return replace(
            self, statuses=live, until=until, overdue_before=overdue_before, is_stuck=False, is_overdue=False
        )

    def fields(self) -> dict[str, str | list[str]]:
        """What was given, by the names in FIELDS; `parse` makes the same filter of it."""
        given: dict[str, str | list[str] | None] = {
            "status": [status.value for status in self.statuses] or None,
            "type": self.type,
            "site": self.site,
            "list": self.list_name,
            "from": to_text(self.since) if self.since else None,
            "to": to_text(self.until) if self.until else None,
            "stuck": "true" if self.is_stuck else None,
            "overdue": "true" if self.is_overdue else None,
            "subject": self.subject,
            "error": self.error_key,
        }
        return {name: value for name, value in given.items() if value is not None}


def parse(given: Mapping[str, str | Sequence[str]]) -> Filter:
    """The filter that these fields say, or InvalidInput naming the field that says none."""
    for name in given:
        if name not in FIELDS:
            raise InvalidInput("filter.unknown", f"there is no filter {name[:64]!r}", field=name[:64])
        if name != "status" and not isinstance(given[name], str):
            raise InvalidInput("filter.one", f"{name} takes one value", field=name)
    one = {name: value for name, value in given.items() if isinstance(value, str)}
    asked = given.get("status", ())
    since, until = parse_range(one)
    return Filter(
        statuses=tuple(dict.fromkeys(_status(text) for text in ([asked] if isinstance(asked, str) else asked))),
        type=check_label(one["type"], "type") if "type" in one else None,
        site=check_label(one["site"], "site") if "site" in one else None,
        list_name=check_label(one["list"], "list") if "list" in one else None,
        since=since,
        until=until,
        is_stuck=_is_true(one, "stuck"),
        is_overdue=_is_true(one, "overdue"),
        subject=_subject(one["subject"]) if "subject" in one else None,
        error_key=_error_key(one["error"]) if "error" in one else None,
    )


def parse_range(given: Mapping[str, str]) -> tuple[datetime | None, datetime | None]:
    """What `from` and `to` say, or InvalidInput when one says no time, or both a range that runs backwards."""
    since, until = (parse_moment(given[name], name) if name in given else None for name in ("from", "to"))
    if since is not None and until is not None and since > until:
        raise InvalidInput("filter.range", "from must not be later than to", field="from")
    return since, until


def parse_moment(text: str, field: str) -> datetime:
    """The time in UTC that this says, or InvalidInput naming the field."""
    moment = from_text(text) if _TIME.fullmatch(text) else None
    if moment is None:
        raise InvalidInput(
            "filter.time",
            f"{field} must be a time in UTC, not {text[:64]!r}",
            field=field,
            hint="write it as 2026-11-15T08:00:00Z",
        )
    # Nothing arrived before computers counted.
    return max(moment, datetime(1970, 1, 1, tzinfo=UTC))


@lru_cache(maxsize=64)
def _words_of(asked: str) -> frozenset[str]:
    """One search looks at thousands of subjects."""
    return frozenset(tokenize(asked))


def _status(text: str) -> Status:
    try:
        return Status(text)
    except ValueError:
        known = ", ".join(Status)
        raise InvalidInput(
            "status.unknown", f"status must be one of {known}, not {text[:64]!r}", field="status"
        ) from None


def _is_true(given: Mapping[str, str], field: str) -> bool:
    text = given.get(field, "false")
    if text not in ("true", "false"):
        raise InvalidInput("filter.truth", f"{field} must be true or false, not {text[:64]!r}", field=field)
    return text == "true"


def _subject(text: str) -> str:
    count = len(tokenize(check_subject(text)))
    if not 1 <= count <= TOKENS_MAX:
        raise InvalidInput(
            "filter.words",
            f"subject must hold 1 to {TOKENS_MAX} words to look for, not {count}",
            field="subject",
            hint="words are made of letters and digits; signs between them are not looked at",
        )
    return text


def _error_key(text: str) -> str:
    if not is_fingerprint_key(text):
        raise InvalidInput(
            "filter.error", "error must be the key of a group of errors", field="error", hint="take one from the groups"
        )
    return text
