"""Where a send or call comes from: given with it, or once for all that a block of code sends.

    with site.context(instance="pump-3", script="leak.py", execution_id=run):
        site.notify.to("operators").send("Leak", "…")

The context belongs to the thread or task that entered it, and to what that starts with a copy of its context.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace

from fieldpost.core.notification import Provenance
from fieldpost.core.text import check_label


@dataclass(frozen=True, slots=True)
class _Context:
    instance: str | None = None
    script: str | None = None
    execution_id: str | None = None
    parent_execution_id: str | None = None


_NAMES = tuple(field.name for field in fields(_Context))
_current: ContextVar[_Context] = ContextVar("fieldpost_provenance", default=_Context())  # noqa: B039


@contextmanager
def provenance_context(**given: str | None) -> Iterator[None]:
    """Set what is given for all that is sent within; what is None stays as it was outside. Raises InvalidInput."""
    checked = {name: check_label(value, name) for name, value in given.items() if value is not None}
    token = _current.set(replace(_current.get(), **checked))
    try:
        yield
    finally:
        _current.reset(token)


Given = tuple[str | None, str | None, str | None, str | None]
"""Instance, script, execution id and parent execution id, as a call gives them."""


def provenance_of(site: str, given: Given) -> Provenance:
    """What was given with the call, and from the context what was not. Raises InvalidInput."""
    context = _current.get()
    found = [
        getattr(context, name) if value is None else check_label(value, name)
        for name, value in zip(_NAMES, given, strict=True)
    ]
    return Provenance(site, *found)
