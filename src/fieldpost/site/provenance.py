"""Where a send or call comes from: given with it, or once for all that a block of code sends.

    with site.context(instance="pump-3", script="leak.py", execution_id=run):
        site.notify.to("operators").send("Leak", "…")

The context belongs to the thread or task that entered it, and to what that starts with a copy of its context.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fieldpost.core.notification import Provenance
from fieldpost.core.text import check_label

Labels = tuple[str | None, str | None, str | None, str | None]
"""Instance, script, execution id and parent execution id."""

_current: ContextVar[Labels] = ContextVar("fieldpost_provenance", default=(None, None, None, None))


@contextmanager
def provenance_context(given: Labels) -> Iterator[None]:
    """Set what is given for all that is sent within; what is None stays as it was outside. Raises InvalidInput."""
    token = _current.set(labels_of(given))
    try:
        yield
    finally:
        _current.reset(token)


def labels_of(given: Labels) -> Labels:
    """What was given with the call, and from the context what was not. Raises InvalidInput."""
    instance, script, execution_id, parent_execution_id = _current.get()
    return (
        instance if given[0] is None else check_label(given[0], "instance"),
        script if given[1] is None else check_label(given[1], "script"),
        execution_id if given[2] is None else check_label(given[2], "execution_id"),
        parent_execution_id if given[3] is None else check_label(given[3], "parent_execution_id"),
    )


def provenance_of(site: str, given: Labels) -> Provenance:
    """The same, at this site."""
    return Provenance(site, *labels_of(given))
