"""The checks: one HTTP request, and the certificate of a TLS server."""

import socket
import ssl
import time
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from cryptography import x509


@dataclass(frozen=True, slots=True)
class HttpResult:
    """A service is up if it answers with a status below 400."""

    is_up: bool
    status_code: int | None = None
    response_ms: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CertificateResult:
    expires_at: datetime | None = None
    error: str | None = None


def check_http(url: str, timeout_s: float, ca_file: str | None = None) -> HttpResult:
    """Send one GET request. A redirect is not followed; it counts as an answer."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    began = time.monotonic()
    connection = None
    try:
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=ca_file)
            connection = HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)
        else:
            connection = HTTPConnection(host, parts.port, timeout=timeout_s)
        connection.request("GET", path, headers={"User-Agent": "fieldpost-uptime-example", "Connection": "close"})
        status = connection.getresponse().status
    except (OSError, HTTPException, ValueError) as error:
        return HttpResult(is_up=False, error=_reason(error))
    finally:
        if connection is not None:
            connection.close()
    response_ms = round((time.monotonic() - began) * 1000)
    error = None if status < 400 else f"answered {status}"
    return HttpResult(is_up=error is None, status_code=status, response_ms=response_ms, error=error)


def check_certificate(host: str, port: int, timeout_s: float) -> CertificateResult:
    """Read the end of the server's certificate, even if it is not trusted or has expired."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only the date is read; check_http verifies
    try:
        with (
            socket.create_connection((host, port), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            encoded = secured.getpeercert(binary_form=True)
        if encoded is None:
            return CertificateResult(error="the server has no certificate")
        return CertificateResult(expires_at=x509.load_der_x509_certificate(encoded).not_valid_after_utc)
    except (OSError, ValueError) as error:
        return CertificateResult(error=_reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate rejected: {error.verify_message}"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
