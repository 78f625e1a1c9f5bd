"""The relay's statements on the tables of the application, for one kind of database.

Claims go by status and by the database's clock, never by a position in the table, so a transaction that commits late is
found like any other. Every change of a claimed row is a compare-and-set on the claim's owner and token.
"""

from dataclasses import dataclass
from functools import cached_property

from fieldpost.core.events.outbox import CLAIMABLE, OutboxStatus
from fieldpost.core.events.relaying import CHECK_FIRST, CHECK_MAX, UNANSWERED
from fieldpost.outbox.relay.dialect import CompiledSql, OutboxDialect
from fieldpost.outbox.tables import HEALTH_LOG, HISTORY, IS_OPEN, IS_UNPUBLISHED, OUTBOX, TASKS

_STATUSES = ", ".join(repr(status.value) for status in CLAIMABLE)
_FOLLOWED = "'PROCESSING', 'FAILED', 'TEMPLATE_NOT_FOUND'"
_KNOWN = ", ".join(repr(status.value) for status in OutboxStatus)
# A row that rows behind it in its order key wait for. A rejected one lets them pass.
_BLOCKS = f"(e.status <> '{OutboxStatus.FAILED}' or e.last_error like '{UNANSWERED}:%')"
_HISTORY_COLUMNS = (
    "notification_history_id, event_outbox_id, event_type, notification_id, cycle, service, group_name, channel,"
    " recipient, subject, message, status, error, sent_at, recorded_at"
)


@dataclass(frozen=True)
class RelayStatements:
    """Compiled at first use."""

    dialect: OutboxDialect

    @cached_property
    def is_any_due(self) -> CompiledSql:
        return self._compile(f"select 1 from {OUTBOX} o where {self._due()} limit 1")

    @cached_property
    def claim(self) -> CompiledSql:
        """PostgreSQL: choose, lock and claim in one statement."""
        d = self.dialect
        return self._compile(f"""
            with due as materialized (
                select o.event_outbox_id as id, {d.bytes_of("o.payload")} as size from {OUTBOX} o where {self._due()}
                order by o.due_at, o.event_outbox_id limit :limit {d.skip_locked}
            ), summed as (
                select id, sum(size) over (order by id rows unbounded preceding) - size as before from due
            )
            update {OUTBOX} set {self._claimed}
            where event_outbox_id = any(array(select id from summed where before < :bytes_max))
            returning {self._columns}
        """)

    def choose(self, status: str) -> CompiledSql:
        """SQLite and MariaDB: due rows of one status, locked, with their sizes.

        One status at a time, because MariaDB would sort all rows of several, and lock what it sorts.
        """
        d = self.dialect
        return self._compile(f"""
            select o.event_outbox_id, {d.bytes_of("o.payload")} from {OUTBOX} o
            where o.status = '{status}' and {self._due()} order by o.due_at limit :limit {d.skip_locked}
        """)

    @cached_property
    def claim_these(self) -> CompiledSql:
        return self._compile(
            self.dialect.update_from(OUTBOX, {"u_id": "id"}, self._claimed, "event_outbox_id = u.u_id")
        )

    @cached_property
    def read_these(self) -> CompiledSql:
        d = self.dialect
        return self._compile(
            f"select {self._columns} from {OUTBOX} join {d.rows({'u_id': 'id'})} on event_outbox_id = u.u_id{d.by_key}"
        )

    @cached_property
    def publish(self) -> CompiledSql:
        """Rows whose events central has recorded."""
        d = self.dialect
        return self._change_claimed(
            {"u_id": "id", "u_token": "int", "u_status": "text", "u_check_s": "float", "u_error": "text"},
            f"status = u.u_status, published_at = {d.now}, due_at = {d.now_plus('u.u_check_s')},"
            f" last_error = u.u_error, last_attempt_at = {d.now}, updated_at = {d.now}, {self._unclaimed}",
        )

    @cached_property
    def fail(self) -> CompiledSql:
        d = self.dialect
        due = f"case when u.u_wait_s is null then {d.far_future} else {d.now_plus('u.u_wait_s')} end"
        return self._change_claimed(
            {"u_id": "id", "u_token": "int", "u_error": "text", "u_wait_s": "float"},
            f"status = '{OutboxStatus.FAILED}', retries = retries + 1, last_error = u.u_error, due_at = {due},"
            f" last_attempt_at = {d.now}, updated_at = {d.now}, {self._unclaimed}",
        )

    @cached_property
    def give_back(self) -> CompiledSql:
        return self._change_claimed({"u_id": "id", "u_token": "int"}, f"{self._as_unclaimed}, {self._unclaimed}")

    @cached_property
    def give_back_lost(self) -> CompiledSql:
        """Claims of this owner that it does not know of: their commit succeeded, its answer was lost."""
        d = self.dialect
        known = f"event_outbox_id not in (select u.u_id from {d.rows({'u_id': 'id'})})"
        return self._compile(
            f"update {OUTBOX} set {self._as_unclaimed}, {self._unclaimed}"
            f" where {IS_UNPUBLISHED} and status = '{OutboxStatus.PROCESSING}' and claim_owner = :owner and {known}"
        )

    @cached_property
    def set_state(self) -> CompiledSql:
        """The status of published rows. SENT is final: a result that arrives late changes nothing."""
        d = self.dialect
        return self._compile(
            d.update_from(
                OUTBOX,
                {"u_id": "id", "u_status": "text", "u_error": "text"},
                f"status = u.u_status, last_error = u.u_error, updated_at = {d.now}",
                f"event_outbox_id = u.u_id and published_at is not null and status <> '{OutboxStatus.SENT}'"
                " and status <> u.u_status",
            )
        )

    @cached_property
    def publish_again(self) -> CompiledSql:
        """Rows whose events central does not know any more."""
        d = self.dialect
        return self._compile(
            d.update_from(
                OUTBOX,
                {"u_id": "id"},
                f"{self._as_unclaimed}, published_at = null, due_at = {d.now}, updated_at = {d.now}",
                f"event_outbox_id = u.u_id and published_at is not null and status <> '{OutboxStatus.SENT}'",
            )
        )

    @cached_property
    def choose_checks(self) -> CompiledSql:
        """Published rows whose result is to be queried by id, locked."""
        d = self.dialect
        return self._compile(f"""
            select {d.text_of("event_outbox_id")} from {OUTBOX}
            where {IS_OPEN} and status in ({_FOLLOWED}) and published_at is not null and due_at <= {d.now}
            order by published_at limit :limit {d.skip_locked}
        """)

    @cached_property
    def postpone_checks(self) -> CompiledSql:
        d = self.dialect
        first, most, age = CHECK_FIRST.total_seconds(), CHECK_MAX.total_seconds(), d.age_s("published_at")
        wait = f"case when {age} < {first} then {first} when {age} > {most} then {most} else {age} end"
        return self._compile(
            d.update_from(OUTBOX, {"u_id": "id"}, f"due_at = {d.now_plus(wait)}", "event_outbox_id = u.u_id")
        )

    @cached_property
    def processing_page(self) -> CompiledSql:
        """Published rows in processing, in the order of their ids, for the first pass after a start."""
        d = self.dialect
        return self._compile(f"""
            select {d.text_of("event_outbox_id")} from {OUTBOX}
            where {IS_OPEN} and status = '{OutboxStatus.PROCESSING}' and published_at is not null
                and event_outbox_id > {self._id_parameter} order by event_outbox_id limit :limit
        """)

    @cached_property
    def facts(self) -> CompiledSql:
        """The fields of rows that the history repeats, and their statuses. A row with a status of the application's own
        is left alone."""
        d = self.dialect
        return self._compile(f"""
            select {d.text_of("event_outbox_id")}, event_type, status, {d.text_of("payload")},
                {d.text_of("attributes")}, published_at is not null
            from {OUTBOX} join {d.rows({"u_id": "id"})} on event_outbox_id = u.u_id{d.by_key}
            where status in ({_KNOWN})
        """)

    @cached_property
    def add_history(self) -> CompiledSql:
        d = self.dialect
        columns = {
            "u_history_id": "id",
            "u_event_id": "id",
            "u_event_type": "text",
            "u_notification_id": "id",
            "u_cycle": "int",
            "u_service": "text",
            "u_group": "text",
            "u_channel": "text",
            "u_recipient": "text",
            "u_subject": "text",
            "u_message": "text",
            "u_status": "text",
            "u_error": "text",
            "u_at": "text",
        }
        values = [f"u.{name}" for name in columns if name != "u_at"] + [d.from_rfc3339("u.u_at"), d.now]
        select = f"select {', '.join(values)} from {d.rows(columns)}"  # type: ignore[arg-type]
        return self._compile(d.insert_new(HISTORY, _HISTORY_COLUMNS, select, "notification_history_id"))

    @cached_property
    def open_rows(self) -> CompiledSql:
        """How many rows the relay still has to publish or to follow, and the age of the oldest."""
        d = self.dialect
        return self._compile(f"""
            select count(*), max({d.age_s("created_at")}) from {OUTBOX} where {IS_OPEN} and
                (status in ('PENDING', 'PROCESSING') or (status = 'FAILED' and published_at is null))
        """)

    @cached_property
    def save_task(self) -> CompiledSql:
        d = self.dialect
        next_run = d.now_plus(self._float("next_s"))
        select = f"select :name, 'relay', :status, {d.now}, {next_run}, {self._text('error')}, {d.now}"
        names = "task_name, task_type, status, last_run_at, next_run_at, error, updated_at"
        changed = ("status", "last_run_at", "next_run_at", "error", "updated_at")
        if d.is_mariadb:
            update = ", ".join(f"{name} = values({name})" for name in changed)
            return self._compile(f"insert into {TASKS} ({names}) {select} on duplicate key update {update}")
        update = ", ".join(f"{name} = excluded.{name}" for name in changed)
        return self._compile(
            f"insert into {TASKS} ({names}) {select} where true on conflict (task_name) do update set {update}"
        )

    @cached_property
    def add_health(self) -> CompiledSql:
        d = self.dialect
        identity = "cast(:id as uuid)" if d.is_postgresql else ":id"
        return self._compile(
            f"insert into {HEALTH_LOG} (system_health_log_id, component, status, message, last_checked_at)"
            f" values ({identity}, :component, :status, :message, {d.now})"
        )

    def purge(self, table: str) -> CompiledSql:
        """Delete the oldest rows past their retention, `limit` at most."""
        d = self.dialect
        key, time, more = {
            OUTBOX: ("event_outbox_id", "updated_at", f"status = '{OutboxStatus.SENT}' and "),
            HISTORY: ("notification_history_id", "recorded_at", ""),
            HEALTH_LOG: ("system_health_log_id", "last_checked_at", ""),
        }[table]
        past = f"{more}{time} < {d.now_plus('-' + self._float('keep_s'))}"
        if d.is_mariadb:
            return self._compile(f"delete from {table} where {past} order by {time} limit :limit")
        chosen = f"select {key} from {table} where {past} order by {time} limit :limit"
        if d.is_postgresql:
            return self._compile(f"delete from {table} where {key} = any(array({chosen} {d.skip_locked}))")
        return self._compile(f"delete from {table} where {key} in ({chosen})")

    @cached_property
    def retry_all(self) -> CompiledSql:
        return self._compile(f"update {OUTBOX} set {self._due_now} where {self._is_retryable}")

    @cached_property
    def retryable(self) -> CompiledSql:
        return self._choose_these(self._is_retryable)

    @cached_property
    def retry(self) -> CompiledSql:
        return self._compile(f"update {OUTBOX} set {self._due_now} where {self._is_retryable} and {self._is_given}")

    @cached_property
    def discardable(self) -> CompiledSql:
        return self._choose_these(self._is_discardable)

    @cached_property
    def discard(self) -> CompiledSql:
        return self._compile(f"delete from {OUTBOX} where {self._is_discardable} and {self._is_given}")

    @cached_property
    def check(self) -> CompiledSql:
        """Nothing but an answer: the database and its table are there."""
        return self._compile(f"select claim_token from {OUTBOX} where 1 = 0")

    _is_retryable = f"published_at is null and status = '{OutboxStatus.FAILED}'"

    @property
    def _due_now(self) -> str:
        return f"due_at = {self.dialect.now}, updated_at = {self.dialect.now}"

    @property
    def _is_discardable(self) -> str:
        now = self.dialect.now
        return f"status <> '{OutboxStatus.SENT}' and (lease_until is null or lease_until <= {now})"

    @property
    def _is_given(self) -> str:
        return f"event_outbox_id in (select u.u_id from {self.dialect.rows({'u_id': 'id'})})"

    def _choose_these(self, condition: str) -> CompiledSql:
        lock = "" if self.dialect.is_sqlite else "for update"
        identity = self.dialect.text_of("event_outbox_id")
        return self._compile(f"select {identity} from {OUTBOX} where {condition} and {self._is_given} {lock}")

    @property
    def _claimed(self) -> str:
        lease = self.dialect.now_plus(self._float("lease_s"))
        return (
            f"status = '{OutboxStatus.PROCESSING}', claim_owner = :owner, claim_token = claim_token + 1,"
            f" lease_until = {lease}"
        )

    _unclaimed = "claim_owner = null, lease_until = null"
    _as_unclaimed = f"status = case when retries = 0 then '{OutboxStatus.PENDING}' else '{OutboxStatus.FAILED}' end"

    def _change_claimed(self, columns: "dict[str, str]", changes: str) -> CompiledSql:
        where = "event_outbox_id = u.u_id and claim_token = u.u_token and claim_owner = :owner and published_at is null"
        return self._compile(self.dialect.update_from(OUTBOX, columns, changes, where))  # type: ignore[arg-type]

    def _due(self) -> str:
        now = self.dialect.now
        return f"""
            o.published_at is null and o.status in ({_STATUSES}) and o.due_at <= {now}
            and (o.lease_until is null or o.lease_until <= {now})
            and {self.dialect.is_usable_id("o.event_outbox_id")}
            and (o.order_key is null or not exists (
                select 1 from {OUTBOX} e where e.order_key = o.order_key and e.order_key is not null
                    and e.published_at is null and e.status in ({_STATUSES})
                    and (e.created_at, e.event_outbox_id) < (o.created_at, o.event_outbox_id) and {_BLOCKS}
            ))
        """

    @property
    def _columns(self) -> str:
        d = self.dialect
        texts = [d.text_of(name) for name in ("event_outbox_id", "payload", "attributes")]
        plain = ["event_type", "action", "resource", "correlation_id", "retries", "claim_token"]
        return ", ".join([*texts, *plain, d.as_rfc3339("created_at")])

    @property
    def _id_parameter(self) -> str:
        return "cast(:after as uuid)" if self.dialect.is_postgresql else ":after"

    def _float(self, name: str) -> str:
        return f"cast(:{name} as double precision)" if self.dialect.is_postgresql else f":{name}"

    def _text(self, name: str) -> str:
        return f"cast(:{name} as text)" if self.dialect.is_postgresql else f":{name}"

    def _compile(self, sql: str) -> CompiledSql:
        return self.dialect.compile(sql)
