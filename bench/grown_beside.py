"""The tables of a grown store beside its notifications, needed by `console`.

200 sites of which five do not report; a month of KPI samples per minute, and a week of those of twenty sites; a day of
every site's health; 200,000 cached calls, 1,000 of them parked; 2,000 intents; 100,000 operator actions in the audit
log; 300 bulk actions, one of them on 10,000 notifications; and one notification with twenty attempts in four cycles.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from fieldpost.core.kpi import KPIS
from fieldpost.core.sites.health import HealthFigures, SiteReport
from fieldpost.core.times import to_microseconds

MINUTE_US = 60_000_000
DAY_US = 1440 * MINUTE_US
SITES = 200
CALLS = 200_000
INTENTS = 2_000
ACTS = 100_000
BULK_ACTS = 300
BULK_ROWS = 10_000
ATTEMPTS = 20
EVENTS = 100_000
SUBSCRIPTIONS = 10_000
WEBHOOKS = 200_000
"""Notifications to the first 200 subscriptions, of the last two weeks."""
TABLES = (
    "samples",
    "site_health",
    "site_health_samples",
    "site_mirrors",
    "cached_calls",
    "intents",
    "bulk_action_rows",
    "bulk_actions",
    "events",
    "subscriptions",
    "topics",
)
"""Tables filled here."""
STORY = "00000000-0000-7000-8000-000000000001"
"""The notification with many attempts."""


@dataclass(frozen=True)
class Dialect:
    """SQL that differs between the databases; `{}` is the argument."""

    numbers: str
    moment: str
    id: str
    """An id derived from a kind and a number."""
    json: str
    digest: str
    may_delete_audit: str
    """Lets this transaction delete audit entries, as the purge does."""


POSTGRESQL = Dialect(
    numbers="generate_series(cast(1 as bigint), {}) as n",
    moment="to_timestamp(({}) / 1e6)",
    id="cast('{}-7000-8000-' || lpad(to_hex({}), 12, '0') as uuid)",
    json="cast({} as jsonb)",
    digest="sha256('story')",
    may_delete_audit="select set_config('fieldpost.is_purging', 'true', true)",
)
SQLITE = Dialect(
    numbers="(with recursive c(n) as (select 1 union all select n + 1 from c where n < {}) select n from c)",
    moment="({})",
    id="'{}-7000-8000-' || printf('%012x', {})",
    json="{}",
    digest="cast('story' as blob)",
    may_delete_audit="update audit_purges set is_purging = true",
)


def call_id(number: int) -> str:
    return f"0000000a-0000-7000-8000-{number:012x}"


def intent_id(number: int) -> str:
    return f"0000000b-0000-7000-8000-{number:012x}"


def bulk_action_id(number: int) -> str:
    return f"0000000c-0000-7000-8000-{number:012x}"


def statements(d: Dialect, at: datetime) -> Iterator[str]:
    """Delete the rows of an earlier version first."""
    now = to_microseconds(at)
    yield d.may_delete_audit
    yield "delete from audit where kind = 'operator_action'"
    yield from (f"delete from {table} where {_story_of(d)}" for table in ("attempts", "targets", "notifications"))
    yield f"delete from audit where {_story_of(d, 'correlation_id')}"
    yield "delete from notifications where event_id is not null"
    yield from (f"delete from {table}" for table in TABLES)
    yield from _figures(d, now)
    yield from _sites(d, now)
    yield from _calls(d, now)
    yield from _acts(d, now)
    yield from _events(d, now)
    yield _webhooks(d, now)
    yield from _story(d, now)


def _figures(d: Dialect, now: int) -> Iterator[str]:
    """Values that vary from minute to minute."""
    parts = " || ', ' || ".join(f"'\"{kpi.name}\": ' || (n * {7 + place} % 100)" for place, kpi in enumerate(KPIS))
    figures = d.json.format(f"'{{' || {parts} || '}}'")
    taken = d.moment.format(f"{now // MINUTE_US * MINUTE_US} - n * {MINUTE_US}")
    yield f"insert into samples (site, taken_at, figures) select '', {taken}, {figures} from {d.numbers.format(43_200)}"
    yield f"""
        insert into samples (site, taken_at, figures) select 'site-' || s.site, {taken}, {figures}
        from {d.numbers.format(10_080)} cross join (select n as site from {d.numbers.format(20)}) as s
    """


def _sites(d: Dialect, now: int) -> Iterator[str]:
    report = SiteReport(
        version="0.9.0",
        backlog={"notification": 12, "external_call": 3, "database_write": 0},
        oldest_age_s=14.0,
        parked=5,
        rejected=1,
        disk_free_bytes=40_000_000_000,
        events={"warning": 3},
        is_forwarding=True,
        forward_error=None,
        failing_for_s=None,
        uptime_s=86400.0,
    )
    heard = d.moment.format(f"{now} - case when n <= 5 then {DAY_US} else n * 100000 end")
    yield f"""
        insert into site_health (site, received_at, report, clock_offset_s)
        select 'site-' || (n - 1), {heard}, {_json(d, asdict(report))}, 0.02
        from {d.numbers.format(SITES)}
    """
    figures = HealthFigures(
        state="online", depth=12, oldest_age_s=14.0, parked=5, rejected=1, disk_free_bytes=40_000_000_000
    )
    kept = asdict(figures)
    yield f"""
        insert into site_health_samples (site, taken_at, figures)
        select 'site-' || (s.site - 1), {d.moment.format(f"{now} - n * 300000000")},
            {_json(d, kept)}
        from {d.numbers.format(288)} cross join (select n as site from {d.numbers.format(SITES)}) as s
    """
    yield f"update sites set last_seen_at = {d.moment.format(now)}"


def _calls(d: Dialect, now: int) -> Iterator[str]:
    call = d.id.format("0000000a-0000", "n")
    seen, ended = d.moment.format(f"{now} - n * 20000000"), d.moment.format(f"{now} - n * 20000000 + 1000000")
    yield f"""
        insert into site_mirrors (site, incarnation, cursor, high, round, reconciled_at)
        select 'site-' || (n - 1), 'one', {CALLS}, {CALLS}, 1, {d.moment.format(now)} from {d.numbers.format(SITES)}
    """
    yield f"""
        insert into cached_calls (site, call_id, incarnation, category, target_summary, status, retry_count,
            last_error, http_status, instance, script, created_at, updated_at, terminal_at, version, round,
            first_seen_at, received_at, begun_at, ended_at)
        select 'site-' || (n % {SITES}), {call}, 'one',
            case n % 3 when 0 then 'database_write' else 'external_call' end, 'erp POST /orders', status, 1,
            case when status in ('parked', 'retrying') then 'HTTP 503: down for maintenance' end,
            case when status = 'delivered' then 201 when status = 'parked' then 503 end, 'erp-gate', 'post.py',
            {seen}, {seen}, case when status = 'delivered' then {ended} end, n, 1, {seen}, {seen}, {seen},
            case when status = 'delivered' then {ended} end
        from (
            select n, case when n % 200 = 7 then 'parked' when n <= 2000 and n % 4 = 0 then 'retrying'
                else 'delivered' end as status
            from {d.numbers.format(CALLS)}
        ) as numbered
    """
    yield f"""
        insert into intents (intent_id, site, kind, message_id, arguments, actor, created_at, expires_at, state,
            outcome, attempts, sent_at, done_at)
        select {d.id.format("0000000b-0000", "n")}, 'site-' || (n % {SITES}), 'retry', {call},
            {_json(d, {})}, 'operator', {seen}, {d.moment.format(f"{now} + {7 * DAY_US}")},
            case when n <= 40 then 'waiting' else 'done' end, case when n > 40 then 'applied' end,
            case when n > 40 then 1 else 0 end, case when n > 40 then {seen} end, case when n > 40 then {ended} end
        from {d.numbers.format(INTENTS)}
    """


def _acts(d: Dialect, now: int) -> Iterator[str]:
    acted = d.moment.format(f"{now} - n * 300000000")
    yield f"""
        insert into audit (event_id, occurred_at, ingested_at, channel, kind, status, actor, target, request_summary,
            extra)
        select {d.id.format("0000000d-0000", "n")}, {acted}, {acted}, 'api_inbound', 'operator_action', 'submitted',
            'person-' || (n % 20), 'ops' || (n % 100), 'list.change', {_json(d, {"targets": 3})}
        from {d.numbers.format(ACTS)}
    """
    act = d.id.format("0000000c-0000", "n")
    yield f"""
        insert into bulk_actions (action_id, verb, actor, reason, wanted, as_of, created_at, status, stage, total, done,
            ended_at)
        select {act}, 'retry', 'person-' || (n % 20), 'the relay is back',
            {_json(d, {"status": "parked"})}, {acted}, {acted}, 'finished', 0,
            case n when 1 then {BULK_ROWS} else 1 end, case n when 1 then {BULK_ROWS} else 1 end, {acted}
        from {d.numbers.format(BULK_ACTS)}
    """
    yield f"""
        insert into bulk_action_rows (action_id, position, notification_id, version, outcome, settled_at)
        select {d.id.format("0000000c-0000", "1")}, n, {d.id.format("0000000e-0000", "n")}, 1, 'done',
            {d.moment.format(now)}
        from {d.numbers.format(BULK_ROWS)}
    """


def event_id(number: int) -> str:
    return f"0000000e-0000-7000-8000-{number:012x}"


def subscription_id(number: int) -> str:
    return f"0000000f-0000-7000-8000-{number:012x}"


def _events(d: Dialect, now: int) -> Iterator[str]:
    at, empty = d.moment.format(f"{now} - n * 60000000"), _json(d, {})
    names = d.json.format("'[]'")
    yield f"""
        insert into topics (topic, description, attributes, owners, created_at, updated_at)
        select 'topic-' || n, 'A kind of event', {names}, {names}, {at}, {at} from {d.numbers.format(100)}
    """
    rest = '"action": null, "resource": null, "attributes": {}, "rule": "native"'
    filter_ = d.json.format(f"""'[{{"topic": "topic-' || (n % 100 + 1) || '", {rest}}}]'""")
    settings = _json(d, {"url": "https://hooks.example.org/in"})
    yield f"""
        insert into subscriptions (subscription_id, name, owner, filter, state, settings, secrets, created_at,
            updated_at)
        select {d.id.format("0000000f-0000", "n")}, 'subscription ' || n, 'owner-' || (n % 200), {filter_}, 'active',
            {settings}, {empty}, {at}, {at}
        from {d.numbers.format(SUBSCRIPTIONS)}
    """
    yield f"""
        insert into events (event_id, topic, source, action, resource, attributes, payload, digest, match_count,
            created_at)
        select {d.id.format("0000000e-0000", "n")}, 'topic-' || (n % 100 + 1), 'app:shop', 'created',
            'orders/' || (n % 1000), {empty}, '{{}}', {d.digest}, 0, {at}
        from {d.numbers.format(EVENTS)}
    """


def _webhooks(d: Dialect, now: int) -> str:
    """Delivered but for each fiftieth. The seventh event went to a thousand subscriptions."""
    at = d.moment.format(f"{now} - n * 6000000")
    event = d.id.format("0000000e-0000", f"case when n <= 1000 then 7 else n % {EVENTS} + 1 end")
    subscription = d.id.format("0000000f-0000", "n % 200 + 1")
    return f"""
        insert into notifications (notification_id, type, list_name, subject, body, status, retry_count, last_error,
            source_site_id, created_at, last_attempt_at, delivered_at, terminal_at, delivery_key, claim_token,
            cycle_started_at, digest, event_id)
        select {d.id.format("00000011-0000", "n")}, 'webhook', 'subscription ' || (n % 200 + 1), 'topic-1', '',
            case n % 50 when 0 then 'parked' else 'delivered' end, case n % 50 when 0 then 5 else 0 end,
            case n % 50 when 0 then 'the receiver answered 500' end, 'app:shop', {at}, {at},
            case n % 50 when 0 then null else {at} end, {at}, 'subscription:' || {subscription}, 1, {at},
            {d.digest}, {event}
        from {d.numbers.format(WEBHOOKS)}
    """


def _story(d: Dialect, now: int) -> Iterator[str]:
    """Retried three times and parked for the fourth time."""
    begun, error = now - DAY_US, "451 try again later"
    story = _story_id(d)
    end = d.moment.format(begun + ATTEMPTS * MINUTE_US)
    yield f"""
        insert into notifications (notification_id, type, list_name, subject, body, status, retry_count, last_error,
            source_site_id, source_script, created_at, last_attempt_at, terminal_at, delivery_key, claim_token, cycle,
            cycle_started_at, version, digest)
        select {story}, 'email', 'ops7', 'Pump 7 has a story', 'It is long.', 'parked', 0, '{error}', 'site-7',
            'watch.py', {d.moment.format(begun)}, {end}, {end}, 'list:ops7', {ATTEMPTS}, 4, {end}, {ATTEMPTS},
            {d.digest}
    """
    yield f"""
        insert into targets (notification_id, address, status, error)
        select {story}, 'ops7@plant.example', 'failed', '{error}'
    """
    at = d.moment.format(f"{begun} + n * {MINUTE_US}")
    yield f"""
        insert into attempts (notification_id, claim_token, cycle, node_id, started_at, finished_at, outcome, phase,
            reply, error, duration_ms)
        select {story}, n, (n - 1) / 5 + 1, 'node', {at}, {at}, 'transient_failure', 'rcpt', '{error}', '{error}', 12
        from {d.numbers.format(ATTEMPTS)}
    """
    for mark, status in (("1", "attempted"), ("2", "parked")):
        yield f"""
            insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status,
                source_site_id, source_node, actor, target, duration_ms)
            select {d.id.format(f"0000000f-000{mark}", "n")}, {at}, {at}, {story}, 'notification', 'notify_deliver',
                '{status}', 'site-7', 'node', 'system', 'ops7', 12
            from {d.numbers.format(ATTEMPTS)}
        """


def _story_id(d: Dialect) -> str:
    return f"cast('{STORY}' as uuid)" if d is POSTGRESQL else f"'{STORY}'"


def _story_of(d: Dialect, column: str = "notification_id") -> str:
    return f"{column} = {_story_id(d)}"


def _json(d: Dialect, value: Mapping[str, object]) -> str:
    return d.json.format(f"'{json.dumps(value)}'")
