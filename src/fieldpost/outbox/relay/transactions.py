"""The relay's transactions on the application's tables, in sets of rows."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fieldpost.core.events.outbox import OutboxStatus
from fieldpost.core.events.relaying import GivenBack, NotPublished, Published, RowChange
from fieldpost.outbox.relay.database import SqlStep, SqlTransaction
from fieldpost.outbox.relay.dialect import OutboxDialect
from fieldpost.outbox.relay.statements import RelayStatements
from fieldpost.outbox.tables import OutboxDatabase

FIRST_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class ClaimedRow:
    """A row of the outbox that this relay may publish."""

    event_id: str
    payload: str
    attributes: str | None
    event_type: str
    action: str | None
    resource: str | None
    correlation_id: str | None
    retries: int
    claim_token: int
    occurred_at: str | None


@dataclass(frozen=True, slots=True)
class RowFacts:
    """The fields of a row that its history repeats."""

    event_type: str
    status: OutboxStatus
    payload: str
    attributes: str | None
    is_published: bool


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One row of `notification_history`."""

    history_id: str
    event_id: str
    event_type: str
    notification_id: str
    cycle: int
    service: str | None
    group: str | None
    channel: str
    recipient: str
    subject: str
    message: str | None
    status: str
    error: str | None
    at: str | None


class OutboxTransactions:
    """The transactions of a relay, for its kind of database and under its name as owner of claims."""

    def __init__(self, database: OutboxDatabase, owner: str) -> None:
        self._sql = self.statements = RelayStatements(OutboxDialect(database))
        self._owner = owner
        self._is_postgresql = database is OutboxDatabase.POSTGRESQL

    @staticmethod
    def ids(ids: Iterable[str]) -> Mapping[str, Any]:
        """The parameter `rows` of a statement on a set of ids."""
        return _ids(ids)

    def check(self) -> SqlTransaction[None]:
        yield SqlStep(self._sql.check, {})

    def is_any_due(self) -> SqlTransaction[bool]:
        result = yield SqlStep(self._sql.is_any_due, {})
        return bool(result.rows)

    def claim(self, limit: int, bytes_max: int, lease_s: float) -> SqlTransaction[list[ClaimedRow]]:
        """Claim due rows, at most `limit` and about `bytes_max` bytes of payloads, but at least one."""
        claim = {"owner": self._owner, "lease_s": lease_s}
        if self._is_postgresql:
            result = yield SqlStep(self._sql.claim, {**claim, "limit": limit, "bytes_max": bytes_max})
        else:
            chosen: list[str] = []
            size = 0
            # New rows may use the rest; without their own share, failed ones would wait forever.
            for status, share in (("FAILED", limit // 4), ("PROCESSING", limit // 4), ("PENDING", limit)):
                room = min(max(share, 1), limit - len(chosen))
                if room <= 0 or size >= bytes_max:
                    break
                found = yield SqlStep(self._sql.choose(status), {"limit": room})
                for event_id, length in found.rows:
                    if chosen and size >= bytes_max:
                        break
                    chosen.append(event_id)
                    size += int(length)
            if not chosen:
                return []
            ids = _ids(chosen)
            yield SqlStep(self._sql.claim_these, {**claim, **ids})
            result = yield SqlStep(self._sql.read_these, ids)
        claimed = [ClaimedRow(*row) for row in result.rows]
        return sorted(claimed, key=lambda row: (row.occurred_at or "", row.event_id))

    def record(self, changes: Sequence[tuple[ClaimedRow, RowChange]]) -> SqlTransaction[int]:
        """End the claims with these changes; how many rows were still this relay's."""
        published, failed, returned = [], [], []
        for row, change in changes:
            key = (row.event_id, row.claim_token)
            match change:
                case Published(status, check_after, error):
                    published.append((*key, status.value, check_after.total_seconds(), error))
                case NotPublished(error, wait):
                    failed.append((*key, error, None if wait is None else wait.total_seconds()))
                case GivenBack():
                    returned.append(key)
        count = 0
        for sql, rows in ((self._sql.publish, published), (self._sql.fail, failed), (self._sql.give_back, returned)):
            if rows:
                result = yield SqlStep(sql, {"rows": _json(rows), "owner": self._owner})
                count += result.count
        return count

    def give_back_lost(self, known: Collection[str]) -> SqlTransaction[int]:
        """End claims whose commit succeeded without an answer; `known` are the events in work."""
        result = yield SqlStep(self._sql.give_back_lost, {"owner": self._owner, **_ids(known)})
        return result.count

    def choose_checks(self, limit: int) -> SqlTransaction[list[str]]:
        """Published rows whose results are to be queried by id now; another relay gets others."""
        result = yield SqlStep(self._sql.choose_checks, {"limit": limit})
        ids = [str(row[0]) for row in result.rows]
        if ids:
            yield SqlStep(self._sql.postpone_checks, _ids(ids))
        return ids

    def processing_page(self, after: str, limit: int) -> SqlTransaction[list[str]]:
        """Published rows in processing behind an id, in the order of their ids."""
        result = yield SqlStep(self._sql.processing_page, {"after": after, "limit": limit})
        return [str(row[0]) for row in result.rows]

    def facts(self, ids: Collection[str]) -> SqlTransaction[dict[str, RowFacts]]:
        result = yield SqlStep(self._sql.facts, _ids(ids))
        return {row[0]: RowFacts(row[1], OutboxStatus(row[2]), row[3], row[4], bool(row[5])) for row in result.rows}

    def apply_results(
        self,
        states: Iterable[tuple[str, OutboxStatus, str | None]],
        unknown: Collection[str],
        history: Sequence[HistoryRow],
    ) -> SqlTransaction[None]:
        """Write what central reported: statuses, rows to publish again, and the history, in one transaction."""
        if rows := [(event_id, status.value, error) for event_id, status, error in states]:
            yield SqlStep(self._sql.set_state, {"rows": _json(rows)})
        if unknown:
            yield SqlStep(self._sql.publish_again, _ids(unknown))
        if history:
            yield SqlStep(self._sql.add_history, {"rows": _json([_values(row) for row in history])})

    def open_rows(self) -> SqlTransaction[tuple[int, float]]:
        """The number of open rows and the age of the oldest in seconds."""
        result = yield SqlStep(self._sql.open_rows, {})
        count, age_s = result.rows[0]
        return int(count), max(0.0, float(age_s or 0.0))

    def save_task(self, name: str, status: str, next_s: float, error: str | None) -> SqlTransaction[None]:
        parameters = {"name": name, "status": status, "next_s": next_s, "error": error}
        yield SqlStep(self._sql.save_task, parameters)

    def add_health(self, log_id: str, component: str, status: str, message: str) -> SqlTransaction[None]:
        parameters = {"id": log_id, "component": component, "status": status, "message": message}
        yield SqlStep(self._sql.add_health, parameters)

    def purge(self, table: str, keep_s: float, limit: int) -> SqlTransaction[int]:
        result = yield SqlStep(self._sql.purge(table), {"keep_s": keep_s, "limit": limit})
        return result.count


def _ids(ids: Iterable[str]) -> Mapping[str, Any]:
    return {"rows": _json([(one,) for one in ids])}


def _json(rows: Sequence[Sequence[Any]]) -> str:
    return json.dumps(rows, ensure_ascii=False)


def _values(row: HistoryRow) -> list[Any]:
    return [getattr(row, name) for name in HistoryRow.__slots__]
