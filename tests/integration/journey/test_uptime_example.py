"""The example application `examples/uptime`, from a failing check to mail and webhook."""

import asyncio
import base64
import json
import os
import secrets
import signal
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fieldpost.clock import SystemClock
from fieldpost.core.errors import ConfigError
from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.testing import HttpServerThread, MailServer, ManualClock, WebhookReceiver, outbox_events
from support.ports import free_port
from support.publish_line import publish_line
from support.relay_process import RelayProcess
from support.running_central import RunningCentral
from support.running_demo import processes_of
from support.shell import run_script

ADDRESS = "web-team@example.org"
SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()
PLAIN_LOOPBACK = {"FIELDPOST_WEBHOOKS__ALLOW_PLAIN": "true", "FIELDPOST_OUTBOUND__ALLOW": "127.0.0.1"}
DEADLINE_S = 30.0


class Monitored:
    """The monitor of two services: "shop" over http, "intranet" over https with a certificate of 40 days."""

    def __init__(self, folder: Path) -> None:
        from uptime.certificates import write_certificate  # type: ignore[import-not-found]

        # The certificate is verified by the machine's clock, so the monitor's begins there.
        self.clock = ManualClock(SystemClock().now().replace(microsecond=0))
        self.expires_at = self.clock.now() + timedelta(days=40)
        self.folder = folder
        self.certificate, key = write_certificate(folder, self.clock.now(), self.expires_at)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.certificate, key)
        self.shop, self.intranet = HttpServerThread(), HttpServerThread(tls=tls)

    def __enter__(self) -> "Monitored":
        from uptime.config import read_config  # type: ignore[import-not-found]
        from uptime.monitor import Monitor  # type: ignore[import-not-found]

        self.shop.__enter__()
        self.intranet.__enter__()
        file = self.folder / "uptime.toml"
        file.write_text(
            f'[[service]]\nname = "shop"\ngroup = "web"\nurl = "{self.shop.url}/health"\n'
            f'[[service]]\nname = "intranet"\ngroup = "web"\nurl = "https://127.0.0.1:{self.intranet.port}/"\n'
            f'ca_file = "{self.certificate.name}"\n'
        )
        self.monitor = Monitor(read_config(file), self.clock)
        self.connection: sqlite3.Connection = self.monitor.database.connection
        return self

    def __exit__(self, *raised: Any) -> None:
        self.monitor.close()
        self.intranet.__exit__(*raised)
        self.shop.__exit__(*raised)

    def sweep(self, after: timedelta = timedelta(0)) -> list[str]:
        """The types of the events that the checks wrote, after this time."""
        self.clock.advance(after.total_seconds())
        return [event.event_type for event in self.monitor.sweep()]

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, values).fetchall()

    async def until(self, sql: str, expected: list[tuple[Any, ...]]) -> None:
        """Wait until the query has this result."""
        found = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                while (found := self.query(sql)) != expected:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"{sql}: {found}, expected {expected}")


@pytest.fixture
def monitored(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitored]:
    monkeypatch.syspath_prepend(str(project / "examples"))
    with Monitored(tmp_path) as opened:
        yield opened


class Receiving:
    """Central set up by the example's own script, a mail catcher and a receiver of webhooks."""

    def __init__(
        self,
        central: RunningCentral,
        mail: MailServer,
        receiver: WebhookReceiver,
        options: RelayOptions,
        relay: RelayProcess,
    ) -> None:
        self.central = central
        self.mail = mail
        self.receiver = receiver
        self.options = options
        self.relay = relay

    async def received(self, count: int) -> tuple[str, dict[str, Any]]:
        """The subject of this mail, and the body of this webhook, counted from 1."""
        mails = await self.mail.received(count, to=ADDRESS)
        webhooks = await self.receiver.received(count, "status-page")
        assert (len(mails), len(webhooks)) == (count, count)
        return mails[-1].subject, json.loads(webhooks[-1].request.body)


@pytest.fixture
async def receiving(project: Path, sqlite_url: str, monitored: Monitored, tmp_path: Path) -> AsyncIterator[Receiving]:
    async with AsyncExitStack() as stack:
        mail = await stack.enter_async_context(MailServer())
        receiver = await stack.enter_async_context(WebhookReceiver({"status-page": SECRET}))
        central = await stack.enter_async_context(
            RunningCentral(sqlite_url, tmp_path / "central", environment=PLAIN_LOOPBACK, port=free_port())
        )
        (tmp_path / "secret").write_text(SECRET)
        script = project / "examples/uptime/central/set_up.sh"
        set_up = await run_script(
            f"{script} 127.0.0.1 {mail.port} {ADDRESS} {receiver.url('status-page')} secret relay-token",
            tmp_path,
            {
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(tmp_path),
                "FIELDPOST_URL": central.url,
                "FIELDPOST_TOKEN_FILE": str(central.folder / "api-token"),
            },
        )
        said, _ = await set_up.communicate()
        assert set_up.returncode == 0, said.decode()
        options = RelayOptions(
            database=f"sqlite:///{tmp_path / 'uptime.db'}",
            url=central.url,
            token_file=str(tmp_path / "relay-token"),
            poll_s=0.1,
            follow_s=0.1,
        )
        relay = RelayProcess(options, tmp_path)
        stack.push_async_callback(relay.kill)
        yield Receiving(central, mail, receiver, options, relay)


@pytest.mark.req("EVT-01", "EVT-04", "EVT-14", "EVT-19", "CHN-01", "DEC-31", "DEC-53", "DEC-57", "DEC-59")
async def test_an_outage_goes_through_the_rows_of_the_worked_example_by_mail_and_webhook(
    monitored: Monitored, receiving: Receiving, sqlite_url: str
) -> None:
    status = "select event_type, status, retries from event_outbox order by created_at"
    history = (
        "select event_type, channel, service, group_name, status, error from notification_history"
        " order by event_type, channel"
    )
    assert monitored.sweep() == []
    # The service fails: a log row, and an event that waits.
    monitored.shop.on("GET").answer(503)
    assert monitored.sweep(timedelta(minutes=1)) == ["SERVICE_DOWN"]
    down_at = monitored.clock.now()
    [(is_up, code, error, event_id)] = monitored.query(
        "select is_up, status_code, error, event_outbox_id from uptime_logs where service = 'shop' and not is_up"
    )
    assert (is_up, code, error) == (0, 503, "answered 503")
    assert monitored.query(status) == [("SERVICE_DOWN", "PENDING", 0)]
    [event] = outbox_events(monitored.connection)
    assert event.event_id == event_id
    assert (event.payload["service"], event.payload["group"]) == ("shop", "web")
    assert event.payload["message"] == "shop is down: answered 503"
    # The webhook is delivered, the mail is not yet: the event is in processing.
    gate = asyncio.Event()
    receiving.mail.on("dot").wait(gate).times(1)
    await receiving.relay.start()
    await receiving.mail.saw("dot")
    sent = ("shop", "web", "sent", None)
    await monitored.until(history, [("SERVICE_DOWN", "webhook", *sent)])
    assert monitored.query(status) == [("SERVICE_DOWN", "PROCESSING", 0)]
    assert monitored.query("select published_at is not null, last_attempt_at is not null from event_outbox") == [(1, 1)]
    # The mail is delivered: a row of the history says so, and the event is sent.
    gate.set()
    await monitored.until(status, [("SERVICE_DOWN", "SENT", 0)])
    down = [("SERVICE_DOWN", "email", *sent), ("SERVICE_DOWN", "webhook", *sent)]
    assert monitored.query(history) == down
    assert monitored.query("select recipient, subject, message from notification_history order by channel") == [
        (ADDRESS, "shop is down", "shop is down: answered 503"),
        ("status-page", "SERVICE_DOWN", "shop is down: answered 503"),
    ]
    subject, webhook = await receiving.received(1)
    assert subject == "shop is down"
    assert (webhook["type"], webhook["data"]) == ("SERVICE_DOWN", event.payload)
    # It is still down: a log row, no event. Then it recovers, and the event has the downtime.
    assert monitored.sweep(timedelta(minutes=1)) == []
    monitored.shop.behave()
    assert monitored.sweep(timedelta(minutes=11)) == ["SERVICE_RECOVERED"]
    await monitored.until(status, [("SERVICE_DOWN", "SENT", 0), ("SERVICE_RECOVERED", "SENT", 0)])
    subject, webhook = await receiving.received(2)
    assert (subject, webhook["data"]["downtime_s"]) == ("shop is up again", 12 * 60)
    assert datetime.fromisoformat(webhook["data"]["since"]) == down_at
    # A certificate reaches its first threshold.
    assert monitored.sweep(timedelta(days=10)) == ["SSL_EXPIRING"]
    await monitored.until("select status, count(*) from event_outbox group by status", [("SENT", 3)])
    subject, webhook = await receiving.received(3)
    assert subject == f"the certificate of intranet expires in 29 days, on {monitored.expires_at.date()}"
    assert (webhook["data"]["days_left"], webhook["data"]["threshold_days"]) == (29, 30)
    assert receiving.receiver.second_copies("status-page") == []
    assert len(monitored.query(history)) == 6
    # A second outage within the cooldown of the route goes to the webhook only.
    monitored.shop.on("GET").answer(503)
    assert monitored.sweep() == ["SERVICE_DOWN"]
    await monitored.until("select status, count(*) from event_outbox group by status", [("SENT", 4)])
    assert monitored.query(history)[:3] == [*down, ("SERVICE_DOWN", "webhook", *sent)]
    assert (len(receiving.mail.mails), len(receiving.receiver.ids("status-page"))) == (3, 4)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as central:
        alarms = central.execute(
            "select subject, severity, incident, is_cleared from notifications where severity <> ''"
        )
        assert sorted(alarms)[:2] == [
            ("shop is down", "critical", "uptime of shop", 0),
            ("shop is up again", "info", "uptime of shop", 1),
        ]
    await receiving.relay.stop()


@pytest.mark.req("EVT-20", "DEC-31", "DEC-54", "DEC-84")
async def test_an_outage_is_reported_once_after_central_was_away_and_the_database_restored(
    monitored: Monitored, receiving: Receiving
) -> None:
    row = "select status, retries, published_at is null, last_error from event_outbox"
    pending, sent = [("PENDING", 0, 1, None)], [("SENT", 0, 0, None)]
    await receiving.central.stop()
    monitored.shop.on("GET").answer(503)
    assert monitored.sweep() == ["SERVICE_DOWN"]
    with closing(sqlite3.connect(":memory:")) as copy:
        monitored.connection.backup(copy)
        # The relay tries, and the row stays as it was.
        await receiving.relay.start()
        await monitored.until("select count(*) > 0 from system_health_logs where status = 'failing'", [(1,)])
        await monitored.until(row, pending)
        await receiving.central.start()
        await monitored.until(row, sent)
        await receiving.relay.stop()
        # From the copy the relay publishes the event again, and central knows it.
        copy.backup(monitored.connection)
    assert monitored.query(row) == pending
    assert monitored.query("select count(*) from notification_history") == [(0,)]
    await receiving.relay.start()
    await monitored.until(row, sent)
    await monitored.until("select count(*) from notification_history", [(2,)])
    await receiving.relay.stop()
    assert (await receiving.received(1))[0] == "shop is down"
    assert receiving.receiver.second_copies("status-page") == []


@pytest.mark.fault(71)
@pytest.mark.req("EVT-20", "DEC-31")
async def test_an_outage_is_reported_once_by_a_relay_that_was_killed_before_it_recorded_the_answer(
    monitored: Monitored, receiving: Receiving, tmp_path: Path
) -> None:
    row = "select status, published_at is null, claim_token from event_outbox"
    monitored.shop.on("GET").answer(503)
    assert monitored.sweep() == ["SERVICE_DOWN"]
    async with publish_line(receiving.central.url) as line:
        line.is_holding = True
        options = replace(receiving.options, url=line.url, lease_s=2.0, timeout_s=1.0)
        async with RelayProcess(options, tmp_path) as killed:
            await line.until(1)
            killed.send(signal.SIGKILL)
    assert monitored.query(row) == [("PROCESSING", 1, 1)]
    await receiving.relay.start()
    await monitored.until(row, [("SENT", 0, 2)])
    await monitored.until("select count(*), count(distinct channel) from notification_history", [(2, 2)])
    await receiving.relay.stop()
    assert (await receiving.received(1))[0] == "shop is down"
    assert receiving.receiver.second_copies("status-page") == []


@pytest.mark.req("EVT-01", "EVT-11", "EVT-14")
def test_each_threshold_of_a_certificate_is_one_event_until_it_is_renewed(monitored: Monitored) -> None:
    days = {}
    for day in range(40):
        if monitored.sweep():
            days[day] = outbox_events(monitored.connection)[-1].payload["threshold_days"]
        assert monitored.sweep(timedelta(hours=12)) == []
        monitored.clock.advance(timedelta(hours=12).total_seconds())
    assert days == {10: 30, 26: 14, 33: 7, 37: 3}
    assert {(event.payload["service"], event.payload["group"]) for event in outbox_events(monitored.connection)} == {
        ("intranet", "web")
    }
    assert monitored.query("select count(*), sum(error is null) from ssl_logs") == [(80, 80)]
    # Renewed, as the monitor finds it six days before the next end: one event, not three.
    database, (_, service) = monitored.monitor.database, monitored.monitor._config.services
    from uptime.checks import CertificateResult  # type: ignore[import-not-found]

    renewed = CertificateResult(expires_at=monitored.clock.now() + timedelta(days=6))
    made = [database.record_certificate(service, renewed, monitored.clock.now()) for _ in range(2)]
    assert made[0].payload["threshold_days"] == 7
    assert made[1] is None


@pytest.mark.req("EVT-02")
@pytest.mark.parametrize(
    ("breaks", "repairs", "error"),
    [
        ("alter table event_outbox rename to away", "alter table away rename to event_outbox", ConfigError),
        (
            "create trigger full before insert on uptime_logs when not new.is_up begin select raise(abort, 'no'); end",
            "drop trigger full",
            sqlite3.IntegrityError,
        ),
    ],
)
def test_log_row_and_event_are_written_together_or_not_at_all(
    monitored: Monitored, breaks: str, repairs: str, error: type[Exception]
) -> None:
    monitored.sweep()
    monitored.shop.on("GET").answer(503)
    monitored.connection.execute(breaks)
    with pytest.raises(error):
        monitored.sweep()
    monitored.connection.execute(repairs)
    assert monitored.query("select count(*) from uptime_logs where not is_up") == [(0,)]
    assert outbox_events(monitored.connection) == []
    # Nothing is lost: the next round finds the outage.
    assert monitored.sweep() == ["SERVICE_DOWN"]
    assert monitored.query("select count(*) from uptime_logs where not is_up") == [(1,)]
    assert len(outbox_events(monitored.connection)) == 1


@pytest.mark.req("EVT-01")
def test_a_restarted_monitor_continues_an_outage_and_an_unreachable_service_is_down(monitored: Monitored) -> None:
    from uptime.monitor import Monitor

    monitored.shop.stop()
    assert monitored.sweep() == ["SERVICE_DOWN"]
    again = Monitor(monitored.monitor._config, monitored.clock)
    try:
        assert again.sweep() == []
        monitored.clock.advance(90)
        monitored.shop.start()
        [event] = again.sweep()
    finally:
        again.close()
    assert (event.event_type, event.payload["downtime_s"]) == ("SERVICE_RECOVERED", 90)
    assert event.payload["message"] == "shop is up again after 1 min"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "add at least one [[service]]"),
        ("intervall_s = 3", "unknown key 'intervall_s'"),
        ('[[service]]\nname = "a"\ngroup = "g"', "service 1: url must be a text, got None"),
        ('[[service]]\nname = "a"\ngroup = "g"\nurl = "ftp://a/"', "service 1: url must be an http or https address"),
        (
            '[[service]]\nname = "a"\ngroup = "g"\nurl = "http://a:x/"',
            "service 1: url must be an http or https address",
        ),
        (
            'interval_s = 0\n[[service]]\nname = "a"\ngroup = "g"\nurl = "http://a/"',
            "interval_s must be greater than 0",
        ),
        ('[[service]]\nname = "a"\ngroup = "g"\nurl = "http://a/"\n' * 2, "service.name must be unique, 'a' is not"),
        (
            '[[service]]\nname = "a"\ngroup = "g"\nurl = "https://a/"\nca_file = "none.pem"',
            "none.pem does not exist",
        ),
    ],
)
def test_invalid_settings_are_refused_by_name(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.syspath_prepend(str(project / "examples"))
    from uptime.config import InvalidConfig, read_config

    file = tmp_path / "uptime.toml"
    file.write_text(text)
    with pytest.raises(InvalidConfig) as refused:
        read_config(file)
    assert expected in str(refused.value)


def test_the_command_reports_invalid_settings_without_a_traceback(project: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "uptime", str(tmp_path / "none.toml")]
    refused = subprocess.run(command, cwd=project / "examples", capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"error: cannot read {tmp_path / 'none.toml'}: " in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_demo_of_the_example_runs_and_leaves_nothing(project: Path, tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    environment = os.environ | {"PYTHONPATH": str(project / "examples"), "TMPDIR": str(tmp_path), "DEMO_MARK": mark}
    command = [sys.executable, "-m", "uptime.demo"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert [line.split(": ", 1)[1] for line in lines if line.startswith("mail ")][1:] == [
        "shop is down",
        "shop is up again",
    ]
    assert [line.split()[2] for line in lines if line.startswith("webhook ")][1:] == [
        "SSL_EXPIRING",
        "SERVICE_DOWN",
        "SERVICE_RECOVERED",
    ]
    assert sum(line.endswith(", SENT, 0") for line in lines) == 3
    assert list(tmp_path.iterdir()) == []
    assert processes_of(mark) == []
