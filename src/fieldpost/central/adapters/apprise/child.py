"""The child process that sends through Apprise: `python -m fieldpost.central.adapters.apprise.child`.

It reads jobs as lines of JSON (`AppriseJob`) and answers each with a line. A line `{"sent": true}` comes first, at the
moment at which the first byte of a request leaves.

Apprise reports success or failure only, so this module observes its requests below it, in `requests` and in the socket:

- Every socket is judged when it connects, by the address that it connects to; nothing but TCP to checked addresses
  passes. Names are resolved by the system; the addresses found for a name are remembered for the operator's allow list.
- No redirects, no proxy variables, no `.netrc`, at most ANSWER_BYTES of a response.
- Retries of Apprise are off, as are its persistent storage and plugins from paths.
"""

import http.client
import importlib
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

from fieldpost.central.adapters.apprise.schemas import HTTP_SCHEMAS
from fieldpost.core.delivery.fitting import fit
from fieldpost.outbound.ranges import Allowed, parse_allowed, refusal

ANSWER_BYTES = 64 * 1024
TEXT_BYTES = 8 * 1024
"""Of an answer, for the parent, which removes secrets before it truncates the text."""
TITLE_BREAK = 2
"""The characters between a title and a body, where a service has no titles."""


class GuardError(OSError):
    """The guard denies the address."""


class Observed:
    """The result of the requests of one job."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.allowed: Allowed = parse_allowed(job["allow"])
        self.proxy: Mapping[str, Any] | None = job["proxy"]
        self.timeout_s: float = job["timeout_s"]
        self.names: dict[str, str] = {}
        """The host names by the addresses that they were resolved to."""
        self.answers: list[dict[str, Any]] = []
        self.failure: dict[str, str] | None = None
        self.is_sent = False

    def note_sent(self) -> None:
        if not self.is_sent:
            self.is_sent = True
            _write({"sent": True})

    def check(self, address: str, host: str) -> None:
        reason = refusal(ip_address(address.partition("%")[0]), host, "strict", self.allowed)
        if reason is not None:
            raise GuardError(f"{host} may not be reached: {reason}")

    def check_socket(self, made: socket.socket, target: Any) -> None:
        if made.family not in (socket.AF_INET, socket.AF_INET6) or made.type & 0xF != socket.SOCK_STREAM:
            raise GuardError("only TCP connections are allowed")
        address, port = str(target[0]), int(target[1])
        if self.proxy is None:
            self.check(address, self.names.get(address, address))
        elif (self.names.get(address, address), port) != (self.proxy["host"], self.proxy["port"]):
            raise GuardError("only connections to the proxy are allowed")


class _Current:
    """The job in progress. A child has one at a time."""

    observed: Observed | None = None

    @classmethod
    def get(cls) -> Observed:
        assert cls.observed is not None, "connections are made in jobs"
        return cls.observed


def main() -> None:
    """Serve jobs from stdin until it is closed."""
    apprise, requests = importlib.import_module("apprise"), importlib.import_module("requests")
    _guard_sockets()
    _observe_requests(requests)
    asset = apprise.AppriseAsset(storage_mode=apprise.PersistentStoreMode.MEMORY, secure_logging=True)
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        _write(_serve(apprise, asset, json.loads(line)))


def _serve(apprise: Any, asset: Any, job: Mapping[str, Any]) -> dict[str, Any]:
    _Current.observed = observed = Observed(job)
    try:
        service = _service(asset, job["url"])
        if service is None:
            return {"fault": "Apprise does not accept this URL"}
        service.retry = 0
        title, body, truncated_to = _fitted(service, job)
        is_ok = service.notify(body=body, title=title, notify_type=job["kind"], body_format=apprise.NotifyFormat.TEXT)
    except Exception as error:
        # A plugin that raises has failed without an answer.
        is_ok = False
        truncated_to = None
        observed.failure = observed.failure or {"kind": "plugin", "reason": f"Apprise failed: {type(error).__name__}"}
    return {
        "is_ok": bool(is_ok),
        "answers": observed.answers[-10:],
        "failure": observed.failure,
        "is_sent": observed.is_sent,
        "truncated_to": truncated_to,
    }


def _service(asset: Any, url: str) -> Any | None:
    """The service of an Apprise URL, as `Apprise.instantiate` makes it, but without loading all others."""
    schema = url.partition(":")[0]
    module = importlib.import_module(f"apprise.plugins.{HTTP_SCHEMAS[schema]}")
    for kind in vars(module).values():
        if isinstance(kind, type) and schema in _schemas_of(kind):
            given = kind.parse_url(url.replace("/#", "/%23"))  # type: ignore[attr-defined]
            try:
                return kind(**given, asset=asset) if given else None
            except TypeError:  # how a plugin refuses its arguments
                return None
    return None


def _schemas_of(kind: type) -> set[str]:
    found: set[str] = set()
    for given in (getattr(kind, "protocol", None), getattr(kind, "secure_protocol", None)):
        found |= {given} if isinstance(given, str) else set(given or ())
    return found


def _fitted(service: Any, job: Mapping[str, Any]) -> tuple[str, str, int | None]:
    """Title and body within the limits of the service, so that neither it nor Apprise truncates or splits them."""
    title_max, body_max = int(service.title_maxlen), int(service.body_maxlen)
    end = f"\n\n{job['end']}"

    def compose(subject: str, body: str) -> tuple[str, str]:
        return subject, f"{body.rstrip()}{end}"

    def size(made: tuple[str, str]) -> int:
        title, body = made
        if title_max <= 0:
            return len(title) + TITLE_BREAK + len(body)
        return max(len(body), body_max + len(title) - title_max)

    fitted = fit(job["subject"], job["body"], compose, size, body_max)
    return *fitted.message, fitted.truncated_to


def _guard_sockets() -> None:
    connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo
    send = http.client.HTTPConnection.send

    def guarded_connect(self: socket.socket, target: Any) -> None:
        _Current.get().check_socket(self, target)
        connect(self, target)

    def guarded_connect_ex(self: socket.socket, target: Any) -> int:
        _Current.get().check_socket(self, target)
        return connect_ex(self, target)

    def refuse(*_: object) -> int:
        raise GuardError("only TCP connections are allowed")

    def remembering(host: Any, *args: Any, **kwargs: Any) -> Any:
        found = getaddrinfo(host, *args, **kwargs)
        if isinstance(host, str):
            for entry in found:
                _Current.get().names[str(entry[4][0])] = host
        return found

    def noting_send(self: http.client.HTTPConnection, data: Any) -> None:
        if self.sock is None and self.auto_open:
            self.connect()
        _Current.get().note_sent()
        send(self, data)

    patched: Any = socket.socket
    patched.connect, patched.connect_ex = guarded_connect, guarded_connect_ex
    patched.sendto = patched.sendmsg = patched.bind = patched.listen = refuse
    socket.getaddrinfo = remembering
    http.client.HTTPConnection.send = noting_send  # type: ignore[method-assign]


def _observe_requests(requests: Any) -> None:
    session = requests.sessions.Session
    made, send = session.__init__, session.send

    def without_environment(self: Any) -> None:
        made(self)
        self.trust_env = False

    def observed_send(self: Any, request: Any, **options: Any) -> Any:
        observed = _Current.get()
        options |= {"allow_redirects": False, "stream": True, "timeout": observed.timeout_s}
        if observed.proxy is not None:
            options["proxies"] = dict.fromkeys(("http", "https"), _proxy_url(observed.proxy))
        try:
            _check_literal(observed, request.url)
            response = send(self, request, **options)
        except requests.exceptions.RequestException as error:
            observed.failure = _failure(error, observed)
            raise
        except GuardError as error:
            observed.failure = {"kind": "guard", "reason": str(error)}
            raise requests.exceptions.ConnectionError(str(error)) from None
        content = response.raw.read(ANSWER_BYTES, decode_content=True)
        response._content = content
        response._content_consumed = True
        observed.answers.append(
            {
                "status": response.status_code,
                "retry_after": response.headers.get("Retry-After"),
                "text": content[:TEXT_BYTES].decode("utf-8", "replace"),
            }
        )
        response.close()
        return response

    session.__init__, session.send = without_environment, observed_send


def _check_literal(observed: Observed, url: str) -> None:
    host = urlsplit(url).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return
    observed.check(host, host)


def _failure(error: BaseException, observed: Observed) -> dict[str, str]:
    for cause in _causes(error):
        if isinstance(cause, GuardError):
            return {"kind": "guard", "reason": str(cause)}
        if isinstance(cause, socket.gaierror):
            return {"kind": "resolve", "reason": "name resolution failed"}
    name = type(error).__name__
    return {"kind": "answer" if observed.is_sent else "connect", "reason": _REASONS.get(name, name)}


_REASONS = {
    "ConnectTimeout": "no connection within the time limit",
    "ReadTimeout": "no answer within the time limit",
    "SSLError": "TLS handshake failed",
    "ConnectionError": "the connection failed",
    "ProxyError": "the proxy did not open a connection",
}


def _causes(error: BaseException) -> Sequence[BaseException]:
    """The error and everything that it wraps: urllib3 keeps some causes in `args` and `reason`."""
    found: list[BaseException] = [error]
    for one in found:
        wrapped = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
        found += [w for w in wrapped if isinstance(w, BaseException) and w not in found and len(found) < 20]
    return found


def _proxy_url(proxy: Mapping[str, Any]) -> str:
    login = f"{quote(proxy['user'], safe='')}:{quote(proxy['password'], safe='')}@" if proxy["user"] else ""
    return f"http://{login}{proxy['host']}:{proxy['port']}"


def _write(answer: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
