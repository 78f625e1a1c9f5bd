"""Validation of mail addresses, for lists, imports, settings and again right before delivery.

Accepts `local@domain` only: no quoted local parts, comments, address literals or display names, although RFC 5322
allows them. Returns the canonical form: the local part as given (in Unicode NFC), the domain in lower-case ASCII with
internationalised names as punycode. Only an address with a non-ASCII *local* part needs a server with SMTPUTF8.
"""

import re
import unicodedata

from fieldpost.core.errors import InvalidInput

LOCAL_BYTES_MAX = 64
ADDRESS_BYTES_MAX = 254
DOMAIN_BYTES_MAX = 253
LABEL_BYTES_MAX = 63

_SHOWN_MAX = 80
_PLAIN = re.compile(r"[a-z0-9_+-]+(?:\.[a-z0-9_+-]+)*@(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]+")
_ATOM = re.compile(r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~\u0080-\U0010ffff-]+")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")


def check_address(value: object, field: str = "address") -> str:
    """Return the canonical form of an address, or raise InvalidInput with the rule that it breaks."""
    if type(value) is not str:
        raise _refused(field, f"must be a str, not {type(value).__name__}")
    if len(value) <= LOCAL_BYTES_MAX and _PLAIN.fullmatch(value):
        return value  # fast path: nearly every address is plain, and too short to break a length rule
    _check_characters(value, field)
    if value.count("@") != 1:
        raise _refused(field, f"must have exactly one @: {_shown(value)}")
    local, domain = value.split("@")
    local = _check_local(local, value, field)
    address = f"{local}@{check_domain(domain, field)}"
    if len(address.encode()) > ADDRESS_BYTES_MAX:
        raise _refused(field, f"must be at most {ADDRESS_BYTES_MAX} bytes: {_shown(value)}")
    return address


def check_domain(domain: str, field: str) -> str:
    """Return a domain in lower-case ASCII (internationalised names as punycode), or raise InvalidInput."""
    if domain.startswith("["):
        raise _refused(field, f"must name a domain, not an address literal: {_shown(domain)}")
    if domain.endswith("."):
        raise _refused(field, f"must not end with a dot: {_shown(domain)}")
    ascii_domain = domain.lower() if domain.isascii() else _punycode(domain, field)
    labels = ascii_domain.split(".")
    if "" in labels:
        raise _refused(field, f"has an empty label in its domain: {_shown(domain)}")
    if len(ascii_domain) > DOMAIN_BYTES_MAX or any(len(label) > LABEL_BYTES_MAX for label in labels):
        raise _refused(
            field, f"has a domain over {DOMAIN_BYTES_MAX} bytes or a label over {LABEL_BYTES_MAX}: {_shown(domain)}"
        )
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise _refused(field, f"has an invalid domain label: {_shown(label)}")
    if labels[-1].isdigit():
        raise _refused(field, f"must name a domain, not a number: {_shown(domain)}")
    return ascii_domain


def needs_utf8(address: str) -> bool:
    """Whether the address requires a server with SMTPUTF8."""
    return not address.isascii()


def _check_local(local: str, value: str, field: str) -> str:
    if not local:
        raise _refused(field, f"has nothing before the @: {_shown(value)}")
    if '"' in local:
        raise _refused(field, f"must not have a quoted local part: {_shown(value)}")
    local = unicodedata.normalize("NFC", local)
    if len(local.encode()) > LOCAL_BYTES_MAX:
        raise _refused(field, f"has more than {LOCAL_BYTES_MAX} bytes before the @: {_shown(value)}")
    atoms = local.split(".")
    if "" in atoms:
        raise _refused(field, f"has a misplaced dot before the @: {_shown(value)}")
    for atom in atoms:
        if not _ATOM.fullmatch(atom):
            raise _refused(field, f"has an invalid character before the @: {_shown(value)}")
    return local


def _check_characters(value: str, field: str) -> None:
    # Category C contains controls, format marks (right-to-left overrides) and lone surrogates, Z all spaces.
    for character in value:
        category = unicodedata.category(character)[0]
        if category in "CZ":
            what = "a space" if category == "Z" else "a control or invisible character"
            raise _refused(field, f"must not contain {what} (U+{ord(character):04X})")


def _punycode(domain: str, field: str) -> str:
    # The codec maps some names to others (ß to ss, full-width letters, other dots), which would misdirect mail. Accept
    # only names that survive the round trip.
    wanted = unicodedata.normalize("NFC", domain.lower())
    try:
        encoded = wanted.encode("idna")
        is_same = encoded.decode("idna") == wanted
    except UnicodeError:
        raise _refused(field, f"has a domain that cannot be written in ASCII: {_shown(domain)}") from None
    if not is_same:
        raise _refused(field, f"has an ambiguous domain; write it in its xn-- form: {_shown(domain)}")
    return encoded.decode("ascii")


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN_MAX else value[:_SHOWN_MAX] + "…")


def _refused(field: str, rule: str) -> InvalidInput:
    return InvalidInput("address.invalid", f"{field} {rule}", field=field)
