"""The checker of all fault tests, in the style of Jepsen's set test: what was acked must come out, and what came out
must have gone in. A sender notes every id it was acked, a sink every delivery; here the two are compared.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import asyncpg

from fieldpost.testing.mail.message import ReceivedMail

Delivery = tuple[str, str]
"""The notification's id and the target that got it."""


@dataclass(frozen=True)
class Verdict:
    """What became of everything that was acked."""

    acked: int
    delivered: int
    lost: frozenset[str]
    """Acked, nowhere delivered, and no longer waiting for anything."""
    stuck: Mapping[str, str]
    """Acked, not delivered, and still at central: the id and its status."""
    duplicates: Mapping[Delivery, int] = field(default_factory=dict)
    """How many copies too many each target got of each notification."""
    unexpected: frozenset[str] = frozenset()
    """Delivered, though nobody ever sent it."""

    @property
    def copies_too_many(self) -> int:
        return sum(self.duplicates.values())

    @property
    def is_whole(self) -> bool:
        """All that was acked was delivered, and nothing else was."""
        return not self.lost and not self.stuck and not self.unexpected


def judge(
    acked: Collection[str],
    deliveries: Iterable[Delivery],
    statuses: Mapping[str, str],
    sent: Collection[str] | None = None,
) -> Verdict:
    """`statuses` are the rows at central; `sent` is what may have been taken in besides what was acked."""
    counted = Counter(deliveries)
    delivered = {notification_id for notification_id, _ in counted}
    missing = [i for i in acked if i not in delivered]
    stuck = {i: statuses[i] for i in missing if statuses.get(i) in ("pending", "retrying", "parked")}
    return Verdict(
        acked=len(set(acked)),
        delivered=len(delivered & set(acked)),
        lost=frozenset(missing) - stuck.keys(),
        stuck=stuck,
        duplicates={delivery: count - 1 for delivery, count in counted.items() if count > 1},
        unexpected=frozenset(delivered - set(acked if sent is None else sent)),
    )


def deliveries_of(mails: Iterable[ReceivedMail]) -> list[Delivery]:
    """Every copy that a mail server took, by the id in its header."""
    return [(str(mail.header("X-Fieldpost-Id")), to) for mail in mails for to in mail.recipients]


async def statuses_of(url: str) -> dict[str, str]:
    """The status of every row, as anybody may read it in the database."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("select notification_id::text as id, status from notifications")
        return {row["id"]: row["status"] for row in rows}
    finally:
        await connection.close()


async def broken_rules(url: str) -> dict[str, list[str]]:
    """The ids of rows that break what must always hold once nothing is under way, by rule."""
    connection = await asyncpg.connect(url)
    try:
        found = {rule: [str(row["id"]) for row in await connection.fetch(sql)] for rule, sql in _RULES.items()}
        return {rule: ids for rule, ids in found.items() if ids}
    finally:
        await connection.close()


_RULES = {
    "delivered without an attempt that says so": """
        select notification_id as id from notifications n where status = 'delivered' and not exists (
            select 1 from attempts a where a.notification_id = n.notification_id and a.outcome = 'delivered')
    """,
    "delivered with a target that is not": """
        select n.notification_id as id from notifications n join targets t using (notification_id)
        where n.status = 'delivered' and t.status <> 'delivered'
    """,
    "the audit does not tell of the delivery exactly once": """
        select notification_id as id from notifications n where status = 'delivered' and 1 <> (
            select count(*) from audit a where a.correlation_id = n.notification_id
            and a.kind = 'notify_deliver' and a.status = 'delivered')
    """,
    "the audit does not tell of the send exactly once": """
        select notification_id as id from notifications n where 1 <> (
            select count(*) from audit a where a.correlation_id = n.notification_id
            and a.kind = 'notify_send' and a.status = 'submitted')
    """,
    "more claims than attempts": """
        select notification_id as id from notifications n where claim_token <> (
            select count(*) from attempts a where a.notification_id = n.notification_id)
    """,
    "two attempts at a time, neither of them orphaned": """
        select a.notification_id as id from attempts a join attempts b
        on a.notification_id = b.notification_id and b.claim_token > a.claim_token
        where b.started_at < a.finished_at and not exists (
            select 1 from audit late where late.correlation_id = a.notification_id and late.status = 'skipped')
    """,
    "a claim on a row that is done": """
        select notification_id as id from notifications
        where status not in ('pending', 'retrying') and claim_owner is not null
    """,
}
