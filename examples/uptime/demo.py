"""`make uptime`: the monitor at work, with everything it needs on this machine.

Starts a mail catcher, a receiver of webhooks, central, the relay and the monitor, each on a free port. Then it takes a
service down and up again, and lets the monitor find a certificate that expires in six days. Every line says which part
it comes from. Exit code 0: every mail and webhook arrived, and every event is SENT.
"""

import base64
import os
import secrets
import signal
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fieldpost.clock import SystemClock
from fieldpost.testing import MailServerThread

from .certificates import write_certificate
from .database import MonitorDatabase

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
PATIENCE_S = 60.0
STOP_S = 15.0
ADDRESS = "web-team@example.org"
EVENTS = ("SSL_EXPIRING", "SERVICE_DOWN", "SERVICE_RECOVERED")


class DemoFailed(Exception):
    """The demo cannot continue; the text is the reason."""


class Script:
    """The lines that were printed, so that the demo can wait for one."""

    def __init__(self) -> None:
        self._lines: list[tuple[str, str]] = []
        self._changed = threading.Condition()

    def say(self, part: str, text: str) -> None:
        with self._changed:
            print(f"{part:>9}  {text}", flush=True)
            self._lines.append((part, text))
            self._changed.notify_all()

    def wait(self, part: str, text: str) -> str:
        """The first line of this part that contains the text."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._found(part, text) is not None, PATIENCE_S):
                raise DemoFailed(f"{part} did not print {text!r} within {PATIENCE_S:g} s")
            found = self._found(part, text)
        assert found is not None
        return found

    def _found(self, part: str, text: str) -> str | None:
        return next((line for who, line in self._lines if who == part and text in line), None)


class Shop:
    """A web service that can be stopped and started on the same port."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}/health"

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _Healthy)
        self._port = self._server.server_address[1]
        if self._tls is not None:
            # Each connection shakes hands in its own thread, not in the one that accepts connections.
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


class Demo:
    """All parts in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._script = Script()
        self._stack = ExitStack()
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("FIELDPOST_")}
        self._environment["PATH"] = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        self._environment["PYTHONPATH"] = str(HERE.parent)
        self._environment["HOME"] = str(folder)  # no profile of the user's command line

    def run(self) -> None:
        """Raises DemoFailed."""
        with self._stack:
            self._say("starting a mail catcher, a receiver of webhooks, and central")
            mail_port, webhook_url = self._start_receiving_ends()
            central_url = self._start_central()
            self._say("setting up central: topics, templates, list, routes, subscription (central/set_up.sh)")
            self._set_up(mail_port, webhook_url)
            self._start_relay(central_url)
            shop = self._start_services()
            self._say("starting the monitor; the certificate of “intranet” expires in 6 days")
            self._start("monitor", sys.executable, "-m", "uptime", str(self._folder / "uptime.toml"))
            self._arrived("SSL_EXPIRING", "the certificate of intranet expires in 6 days")
            self._say("taking the service “shop” down")
            shop.stop()
            self._arrived("SERVICE_DOWN", "shop is down")
            self._say("starting “shop” again")
            shop.start()
            self._arrived("SERVICE_RECOVERED", "shop is up again")
            self._wait_until_sent()
            self._print_tables()
            self._say("every event was written with its log row, and reached mail and webhook; stopping")

    def _say(self, text: str) -> None:
        self._script.say("demo", text)

    def _arrived(self, event_type: str, subject: str) -> None:
        self._script.wait("monitor", event_type)
        self._script.wait("mail", subject)
        self._script.wait("webhook", event_type)

    def _start_receiving_ends(self) -> tuple[int, str]:
        mail = self._stack.enter_context(
            MailServerThread(on_mail=lambda one: self._script.say("mail", f"to {ADDRESS}: {one.subject}"))
        )
        secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
        (self._folder / "secret").write_text(secret)
        self._start("webhook", sys.executable, str(HERE.parent / "webhook_receiver/receiver.py"), secret, "0")
        return mail.port, self._script.wait("webhook", "listening on").split()[-1]

    def _start_central(self) -> str:
        # Plain http and loopback are not allowed otherwise.
        self._environment |= {"FIELDPOST_WEBHOOKS__ALLOW_PLAIN": "true", "FIELDPOST_OUTBOUND__ALLOW": "127.0.0.1"}
        data = self._folder / "fieldpost-data"
        self._start("central", str(BIN / "fieldpost"), "central", "--port", "0", "--folder", str(data))
        url = self._script.wait("central", "Central serves at").split()[-1]
        self._script.wait("central", "an API token in")
        self._environment |= {"FIELDPOST_URL": url, "FIELDPOST_TOKEN_FILE": str(data / "api-token")}
        return url

    def _set_up(self, mail_port: int, webhook_url: str) -> None:
        files = [str(self._folder / "secret"), str(self._folder / "relay-token")]
        command = [str(HERE / "central/set_up.sh"), "127.0.0.1", str(mail_port), ADDRESS, webhook_url, *files]
        done = subprocess.run(
            command, env=self._environment, cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise DemoFailed(f"set_up.sh failed: {done.stdout}{done.stderr}")

    def _start_relay(self, central_url: str) -> None:
        database = self._folder / "uptime.db"
        self._environment |= {
            "FIELDPOST_RELAY__DATABASE": f"sqlite:///{database}",
            "FIELDPOST_RELAY__URL": central_url,
            "FIELDPOST_RELAY__TOKEN_FILE": str(self._folder / "relay-token"),
        }
        MonitorDatabase(database).close()  # the relay needs the tables
        self._say("starting the relay (fieldpost relay)")
        self._start("relay", str(BIN / "fieldpost"), "relay")

    def _start_services(self) -> Shop:
        """Start the services and write the monitor's settings; the one to take down."""
        now = SystemClock().now()
        certificate, key = write_certificate(self._folder, now, now + timedelta(days=6, hours=12))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        shop, intranet = Shop(), Shop(tls)
        for one in (shop, intranet):
            one.start()
            self._stack.callback(one.stop)
        (self._folder / "uptime.toml").write_text(
            'database = "uptime.db"\ninterval_s = 1\ntimeout_s = 5\n'
            f'[[service]]\nname = "shop"\ngroup = "web"\nurl = "{shop.url}"\n'
            f'[[service]]\nname = "intranet"\ngroup = "web"\nurl = "{intranet.url}"\nca_file = "{certificate.name}"\n'
        )
        return shop

    def _wait_until_sent(self) -> None:
        self._say("waiting until the relay has the results")
        clock = SystemClock()
        until = clock.monotonic() + PATIENCE_S
        while (found := self._query("select event_type, status from event_outbox order by created_at")) != [
            (one, "SENT") for one in EVENTS
        ]:
            if clock.monotonic() > until:
                raise DemoFailed(f"the events are not SENT: {found}")
            clock.pause(0.2)

    def _print_tables(self) -> None:
        for title, query in (
            ("uptime_logs with an event", "select service, is_up, error from uptime_logs where event_outbox_id > ''"),
            ("ssl_logs with an event", "select service, days_left, threshold_days from ssl_logs where threshold_days"),
            ("event_outbox", "select event_type, status, retries from event_outbox order by created_at"),
            (
                "notification_history",
                "select event_type, channel, recipient, status from notification_history order by sent_at",
            ),
        ):
            self._say(f"{title}:")
            for row in self._query(query):
                self._say("    " + ", ".join(str(value) for value in row))

    def _query(self, query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self._folder / "uptime.db", timeout=30)) as connection:
            return connection.execute(query).fetchall()

    def _start(self, part: str, *command: str) -> None:
        """Start a process whose output becomes lines of this part; its log goes to a file."""
        with (self._folder / f"{part}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C reaches the demo, which stops the parts in order
            )
        reader = threading.Thread(target=self._read, args=(part, process), daemon=True)
        reader.start()

        def stop() -> None:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            reader.join(STOP_S)

        self._stack.callback(stop)

    def _read(self, part: str, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._script.say(part, line.rstrip())


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="fieldpost-uptime-") as folder:
        try:
            Demo(Path(folder)).run()
        except DemoFailed as error:
            print(f"The demo failed: {error}", file=sys.stderr)
            for log in sorted(Path(folder).glob("*.log")):
                tail = log.read_text(errors="replace").splitlines()[-10:]
                print("\n".join([f"-- {log.name}", *tail]), file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("Stopped.")
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
