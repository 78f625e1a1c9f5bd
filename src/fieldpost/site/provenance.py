"""The provenance of a send or call, passed with it or set once for a block of code.

    with site.context(instance="pump-3", script="leak.py", execution_id=run):
        site.notify.to("operators").send("Leak", "…")

The context applies to the thread or task that entered it, and to tasks that inherit a copy of its context.
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
    """Set these labels for the block; None keeps the outer value. Raises InvalidInput."""
    token = _current.set(labels_of(given))
    try:
        yield
    finally:
        _current.reset(token)


def labels_of(given: Labels) -> Labels:
    """The labels passed with the call, completed from the context. Raises InvalidInput."""
    instance, script, execution_id, parent_execution_id = _current.get()
    return (
        instance if given[0] is None else check_label(given[0], "instance"),
        script if given[1] is None else check_label(given[1], "script"),
        execution_id if given[2] is None else check_label(given[2], "execution_id"),
        parent_execution_id if given[3] is None else check_label(given[3], "parent_execution_id"),
    )


def provenance_of(site: str, given: Labels) -> Provenance:
    """The provenance with these labels at this site."""
    return Provenance(site, *labels_of(given))
