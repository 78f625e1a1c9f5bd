"""`docs/explanation/limits.md` lists every limiting setting and every fixed limit that a client can meet."""

import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.run.settings import CentralSettings
from fieldpost.site.config.folder import OPTIONS

PAGE = "docs/explanation/limits.md"
LIMITING = re.compile(r"_max$|^hold_max_s$|^slots|^connections|_per_(s|host|key)$|^credits$")
THRESHOLDS = {"breaker_failures_max", "failures_max"}
"""Settings that end the same way and limit nothing: they say when a breaker opens."""
GUARDS = (
    "front",
    "link",
    "outbound",
    "central/access",
    "central/commands",
    "central/ingest",
    "site/local",
    "run/log_limits.py",
    "core/alarm.py",
    "core/events",
    "core/login.py",
    "core/search",
    "core/secret.py",
    "core/text.py",
    "core/wholes.py",
    "core/zgw",
    "central/adapters/webhook",
    "central/operate",
    "central/rendering",
    "central/watch/cursor.py",
    "site/carriers",
    "site/config",
)
"""Where requests, messages and answers of others are met, and where values that users give are checked."""
CONSTANT = re.compile(r"^([A-Z][A-Z_]*_MAX) = ", re.MULTILINE)
FIXED = {
    "front.websocket_limits.FRAMES_MAX": "frame of the link",
    "front.websocket_limits.CONTROL_FRAMES_MAX": "pings and pongs per WebSocket",
    "front.websocket_limits.QUEUE_MAX": "messages waiting per WebSocket",
    "front.http_limits.HEAD_BYTES_MAX": "request head",
    "front.http_limits.REQUEST_BYTES_MAX": "HTTP request with its framing",
    "front.http_limits.PIPELINED_MAX": "pipelined requests",
    "front.http.call.BODY_BYTES_MAX": "request body of the API",
    "front.api.submissions.KEY_LENGTH_MAX": "idempotency key",
    "front.files.lists.FILE_BYTES_MAX": "request body of the API",
    "front.receipts.BODY_BYTES_MAX": "receipt",
    "front.allowance.ADDRESSES_MAX": "receipt",
    "front.change_feed.LISTENERS_MAX": "live pages of the console",
    "front.connections.WAITING_MAX": "messages for a site that polls",
    "front.server.UNSENT_BYTES_MAX": "unsent bytes per connection in the kernel",
    "front.console.kit.forms.FORM_BYTES_MAX": "console form",
    "front.console.kit.forms.FIELDS_MAX": "console form",
    "front.console.lists.FORM_BYTES_MAX": "console form",
    "front.console.channels.FORM_BYTES_MAX": "console form",
    "front.console.list_import.FORM_BYTES_MAX": "console form",
    "front.console.events.subscriptions.FORM_BYTES_MAX": "console form",
    "link.codec.DIGITS_MAX": "digits of a number on the link",
    "link.codec.RATIO_MAX": "growth of a compressed message",
    "link.messages.ITEMS_MAX": "items of a submit or batch",
    "link.messages.FRAME_BYTES_MAX": "frame of the link",
    "link.values.VALUES_MAX": "values per other JSON body",
    "outbound.tokens.LIFE_S_MAX": "life of a cached access token",
    "outbound.tokens.CREDENTIALS_MAX": "idle outbound connections",
    "outbound.client.ANSWER_BYTES_MAX": "answer of a receiver that is read",
    "outbound.connection.IDLE_MAX": "idle outbound connections",
    "outbound.guard.PASSED_MAX": "idle outbound connections",
    "outbound.resolver.NAMES_MAX": "idle outbound connections",
    "outbound.resolver.LOOKUPS_MAX": "name lookups at once",
    "outbound.resolver.HUNG_MAX": "name lookups at once",
    "outbound.url.URL_CHARACTERS_MAX": "URL",
    "outbound.answer_parser.HEAD_BYTES_MAX": "head of an answer",
    "outbound.answer_parser.LINE_BYTES_MAX": "head of an answer",
    "outbound.answer_parser.INFORMATIONAL_MAX": "head and chunk framing of an answer",
    "outbound.answer_parser.OVERHEAD_BYTES_MAX": "head and chunk framing of an answer",
    "outbound.proxy.HEAD_BYTES_MAX": "answer of a proxy to CONNECT",
    "central.access.passwords.HASHES_MAX": "password hashes at once",
    "central.access.tokens.LIFE_MAX": "life of an API token",
    "central.access.tokens.OVERLAP_MAX": "life of an API token",
    "central.access.logins.AGENT_BYTES_MAX": "name of a client's browser that is kept",
    "central.access.refusals.ENTRIES_MAX": "audit entries of refusals per node",
    "central.access.refusals.KEYS_MAX": "actors, actions and addresses whose refusals are counted",
    "central.access.id_token.LIFE_MAX": "ID token of an identity provider",
    "central.access.id_token.TOKEN_CHARACTERS_MAX": "ID token of an identity provider",
    "central.commands.open_intents.ROWS_MAX": "rows and bytes kept of a site's answer to a command",
    "central.commands.open_intents.ANSWER_BYTES_MAX": "rows and bytes kept of a site's answer to a command",
    "central.commands.open_intents.CELLS_MAX": "rows and bytes kept of a site's answer to a command",
    "central.commands.sender.INTENTS_MAX": "commands sent to one site in a sweep",
    "central.ingest.epochs.REASON_BYTES_MAX": "reason of a switch that is kept",
    "central.ingest.health.DIFFERENCES_MAX": "differences between the nodes of a pair",
    "central.ingest.mirror.TARGET_BYTES_MAX": "text of a call's target that is kept",
    "central.ingest.publish.ROWS_MAX": "rows that publishing writes in one transaction",
    "central.ingest.health.KINDS_MAX": "kinds in a site's health report",
    "site.local.guard.BODY_BYTES_MAX": "request body",
    "site.local.handlers.LIMIT_MAX": "rows of a page",
    "site.local.handlers.WAITING_MAX": "requests that wait for a thread",
    "run.log_limits.LINES_MAX": "log lines of one event, code and address",
    "run.log_limits.ADDRESSES_MAX": "log lines of one event, code and address",
    "run.log_limits.VALUE_CHARACTERS_MAX": "any other value in the log",
    "run.log_limits.SHORT_CHARACTERS_MAX": "a path in the log",
    "core.alarm.INCIDENT_LENGTH_MAX": "incident of an alarm",
    "core.events.event.EVENTS_MAX": "events per request",
    "core.events.event.PAYLOAD_BYTES_MAX": "payload of an event",
    "core.events.event.REQUEST_BYTES_MAX": "events per request",
    "core.events.filter.ENTRIES_MAX": "entries of a filter",
    "core.events.filter.KEY_LENGTH_MAX": "entries of a filter",
    "core.events.filter.VALUE_LENGTH_MAX": "entries of a filter",
    "core.events.json_schema.STEPS_MAX": "schema and example of a topic",
    "core.events.outbox.DELIVER_AFTER_DAYS_MAX": "`deliver_after`",
    "core.events.outbox.EVENT_TYPE_LENGTH_MAX": "event type",
    "core.events.payload.DEPTH_MAX": "payload",
    "core.events.route.COOLDOWN_S_MAX": "cooldown of a route",
    "core.events.template.BODY_SOURCE_BYTES_MAX": "source of a template",
    "core.events.template.SUBJECT_SOURCE_BYTES_MAX": "source of a template",
    "core.events.topic.ATTRIBUTES_MAX": "name of a topic",
    "core.events.topic.DESCRIPTION_BYTES_MAX": "name of a topic",
    "core.events.topic.EXAMPLE_BYTES_MAX": "schema and example of a topic",
    "core.events.topic.OWNERS_MAX": "name of a topic",
    "core.events.topic.SCHEMA_BYTES_MAX": "schema and example of a topic",
    "core.events.topic.TOPIC_LENGTH_MAX": "name of a topic",
    "core.login.PASSWORD_BYTES_MAX": "user name",
    "core.login.USER_NAME_MAX": "user name",
    "core.search.tokens.TOKENS_MAX": "words of a search",
    "core.search.tokens.TOKEN_LENGTH_MAX": "words of a search",
    "core.secret.SECRET_BYTES_MAX": "user name",
    "core.text.BODY_BYTES_MAX": "subject, body",
    "core.text.ERROR_BYTES_MAX": "stored error text",
    "core.text.LABEL_BYTES_MAX": "subject, body",
    "core.text.LIST_NAME_BYTES_MAX": "subject, body",
    "core.text.SUBJECT_BYTES_MAX": "subject, body",
    "core.wholes.MEMBERS_MAX": "lists that a list of lists names",
    "core.zgw.abonnement.AUTH_LENGTH_MAX": "any URL",
    "core.zgw.abonnement.CALLBACK_LENGTH_MAX": "any URL",
    "core.zgw.abonnement.LINK_LENGTH_MAX": "any URL",
    "core.zgw.client.CLIENT_ID_BYTES_MAX": "id of a client",
    "core.zgw.client.KANALEN_MAX": "id of a client",
    "core.zgw.fields.URL_LENGTH_MAX": "any URL",
    "core.zgw.notification.AHEAD_MAX": "`aanmaakdatum` in the future",
    "core.zgw.notification.KANAAL_LENGTH_MAX": "name of a kanaal",
    "core.zgw.notification.KENMERKEN_MAX": "kenmerken of a notification",
    "core.zgw.notification.NAME_LENGTH_MAX": "name of a kanaal",
    "core.zgw.notification.VALUE_LENGTH_MAX": "kenmerken of a notification",
    "core.zgw.token.AGE_MAX": "token of a client",
    "core.zgw.token.AHEAD_MAX": "token of a client",
    "core.zgw.token.TOKEN_BYTES_MAX": "token of a client",
    "central.adapters.webhook.setting_checks.CODES_MAX": "headers of a subscription",
    "central.adapters.webhook.setting_checks.HEADERS_MAX": "headers of a subscription",
    "central.adapters.webhook.setting_checks.HEADER_BYTES_MAX": "headers of a subscription",
    "central.operate.bulk_actions.SELECTION_MAX": "notifications of one bulk action by selection",
    "central.operate.intents.MESSAGES_MAX": "calls or messages of one request to a site",
    "central.operate.intents.OPEN_MAX": "open intents",
    "central.operate.intents.ROWS_MAX": "calls or messages of one request to a site",
    "central.operate.list_files.FAULTS_MAX": "faults reported for an imported file",
    "central.operate.list_spec.SITES_MAX": "targets of a list",
    "central.operate.list_spec.TARGETS_MAX": "targets of a list",
    "central.operate.recovery.PREVIEW_EVENTS_MAX": "events counted by the preview of a recovery",
    "central.operate.sites.VALID_MAX": "life of an invitation",
    "central.operate.zgw.clients.OPENED_MAX": "secrets of clients that are kept decrypted",
    "central.rendering.child.OUTPUT_MAX": "text of a template",
    "central.watch.cursor.LIMIT_MAX": "rows of a page of the API",
    "site.carriers.call_arguments.CALL_BODY_BYTES_MAX": "path, query and body of an external call",
    "site.carriers.call_arguments.PATH_BYTES_MAX": "path, query and body of an external call",
    "site.carriers.call_arguments.QUERY_BYTES_MAX": "path, query and body of an external call",
    "site.carriers.http.ANSWER_BYTES_MAX": "answer of an external system that is read",
    "site.carriers.http.EXCERPT_BYTES_MAX": "answer of an external system that is read",
    "site.carriers.postgresql.CONNECTIONS_MAX": "connections to one PostgreSQL database",
    "site.carriers.postgresql.ERROR_BYTES_MAX": "error text of a database that is kept",
    "site.carriers.sqlite.ERROR_BYTES_MAX": "error text of a database that is kept",
    "site.carriers.write_arguments.PARAMETERS_BYTES_MAX": "parameters of a database write",
    "site.config.folder.SETTINGS_BYTES_MAX": "`site.toml`",
    "site.config.headers.HEADERS_MAX": "headers of an external call",
    "site.config.headers.HEADER_BYTES_MAX": "headers of an external call",
    "site.config.secret_files.SECRET_FILE_BYTES_MAX": "`site.toml`",
    "site.config.statements.PARAMETERS_MAX": "SQL statement",
    "site.config.statements.STATEMENT_BYTES_MAX": "SQL statement",
}
"""Each fixed limit and the beginning of its row on the page."""
NOT_LISTED = {
    "front.websocket_limits.MESSAGE_BYTES_MAX": "a frame with its framing",
    "front.console.kit.compression.BLUR_BYTES_MAX": "padding",
    "front.console.health.ISSUES_MAX": "how many the page shows",
    "front.console.health.SITES_MAX": "how many the page shows",
    "front.console.health.NODES_MAX": "how many the page shows",
    "front.console.notifications.GROUPS_MAX": "how many the page shows",
    "front.console.new_bulk_action.SELECTED_MAX": "how many fit on a page of the list",
    "front.console.sites.site_queries.ROWS_MAX": "page size",
    "link.codec.ERROR_QUOTE_BYTES_MAX": "length of a quotation",
    "link.messages.SEQ_MAX": "range of a number",
    "link.values.CELLS_MAX": "part of the values per link message",
    "link.http.client.RESPONSE_BYTES_MAX": "our own command reads central's answer",
    "link.http.openapi.SUMMARY_LENGTH_MAX": "length of a generated text",
    "link.endpoint.URLS_MAX": "addresses of central that a site may be given",
    "link.join.ANSWER_BYTES_MAX": "our own command reads central's answer",
    "link.session.BYTES_MAX": "what our own sender puts into a frame",
    "link.session.IN_FLIGHT_MAX": "what our own sender sends without an answer",
    "link.status.ANSWER_BYTES_MAX": "our own command reads central's answer",
    "outbound.proxy.REASON_BYTES_MAX": "length of a quotation",
    "outbound.options.LOOKUP_TIMEOUT_S_MAX": "range of a setting",
    "central.access.account_options.SECONDS_MAX": "range of a setting",
    "central.ingest.publish.DAYS_MAX": "range of a setting",
    "central.ingest.health.COUNT_MAX": "range of a number",
    "central.ingest.submit.ENQUEUED_TEXT_MAX": "length of a time",
    "site.local.listener.LISTENERS_MAX": "the socket and the port",
    "core.alarm.INCIDENT_BYTES_MAX": "follows from its characters",
    "core.events.json_schema.DEPTH_MAX": "beyond the levels that JSON may have here",
    "core.events.members.ADDRESS_BYTES_MAX": "length of an address, which its channel checks too",
    "core.events.outbox.AGE_S_MAX": "range of a number",
    "core.events.outbox.OPEN_MAX": "range of a number",
    "core.events.relaying.CHECK_MAX": "how often our own relay asks",
    "core.events.relaying.ERROR_BYTES_MAX": "a stored error text in the application's database",
    "core.events.signature.KEY_BYTES_MAX": "range of the size of a key",
    "core.events.signature.SIGNATURES_MAX": "how many signatures a receiver tries",
    "core.search.fingerprint.FINGERPRINT_LENGTH_MAX": "part of an error that is compared",
    "core.wholes.NAMED_MAX": "how many a sentence names",
    "central.adapters.webhook.options.DAYS_MAX": "range of a setting",
    "central.adapters.webhook.options.SECONDS_MAX": "range of a setting",
    "central.adapters.webhook.setting_checks.TEXT_MAX": "length of a setting",
    "central.operate.bulk_step.GATHER_MAX": "batch of our own work",
    "central.operate.intents.EXPIRE_HOURS_MAX": "range of a setting",
    "central.operate.subscriptions.PAGE_MAX": "batch of our own reads",
    "central.operate.lists.NAMED_MAX": "how many an audit entry names",
    "site.carriers.http.STALE_MAX": "how often our own client connects again",
    "site.carriers.payloads.SUMMARY_BYTES_MAX": "length of a summary",
    "site.config.options.WAIT_MS_MAX": "range of a setting",
}
"""Constants of the same form that no client runs into, and what they are."""


def rows(project: Path) -> list[list[str]]:
    """The rows of the page's tables, as cells."""
    lines = (project / PAGE).read_text().splitlines()
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line.startswith("| ")]


def constants(project: Path) -> Iterator[str]:
    source = project / "src/fieldpost"
    for guard in GUARDS:
        path = source / guard
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            module = ".".join(file.relative_to(source).with_suffix("").parts)
            for name in CONSTANT.findall(file.read_text()):
                yield f"{module}.{name}"


def spellings(value: object) -> Iterator[str]:
    """The ways in which the page may write this value."""
    if isinstance(value, timedelta):
        yield f"{value.days:,} days"
        yield f"{value.days} day"
        yield f"{value.total_seconds() / 3600:.0f} h"
        yield f"{value.total_seconds() / 60:.0f} min"
        return
    assert isinstance(value, int | float)
    yield f"{value:,.0f}"
    yield f"{value / 3600:.0f} h"
    yield f"{value / 86400:.0f} days"
    for unit, size in (("KiB", 1024), ("MiB", 1024**2)):
        if value % size == 0:
            yield f"{value // size:.0f} {unit}"


def test_every_limiting_setting_is_on_the_page(project: Path) -> None:
    kinds = [type(getattr(CentralSettings(), section.name)) for section in fields(CentralSettings)]
    names = {option.name for kind in (*kinds, RelayOptions, *OPTIONS.values()) for option in fields(kind)}
    limiting = {name for name in names if LIMITING.search(name)} - THRESHOLDS
    assert len(limiting) > 15
    page = (project / PAGE).read_text()
    assert sorted(name for name in limiting if not re.search(rf"`(?:\[\w+\] )?{name}`", page)) == []


def test_every_fixed_limit_is_on_the_page_or_marked_as_not_a_limit(project: Path) -> None:
    found = set(constants(project))
    assert sorted(found - set(FIXED) - set(NOT_LISTED)) == [], f"add a row to {PAGE} and a line to FIXED here"
    assert sorted({*FIXED, *NOT_LISTED} - found) == [], "these no longer exist"


@pytest.mark.parametrize("name", FIXED)
def test_the_row_of_a_fixed_limit_has_its_value(project: Path, name: str) -> None:
    module, _, constant = name.rpartition(".")
    value = getattr(import_module(f"fieldpost.{module}"), constant)
    found = [cells[1] for cells in rows(project) if re.match(rf"{re.escape(FIXED[name])}(?!\w)", cells[0])]
    expected = list(spellings(value))
    assert any(re.search(rf"(?<![\d,]){re.escape(one)}(?![\d,]\d)", text) for text in found for one in expected), (
        f"{PAGE}: the row {FIXED[name]!r} needs one of {expected}"
    )


def test_every_row_says_what_happens_beyond_the_limit(project: Path) -> None:
    assert [cells[0] for cells in rows(project) if len(cells) != 5 or not cells[3]] == []
