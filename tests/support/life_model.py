"""A notification's life as it should be, in plain Python: what the store is held against, step by step.

The rules stand here a second time, from the ledger and not from the code: one row with its targets, its claim, its
attempts and what the audit tells of it. Times are given; nothing is looked up.
"""

from collections import Counter
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

LEASE_S = 90
DELAY = timedelta(seconds=60)
HOLD = timedelta(seconds=10)
HOLD_MAX = timedelta(days=5)
ATTEMPTS_MAX = 3
BREAKER = "channel:mail"

TARGETS = {"ops": ("a@example.org", "b@example.org", "c@example.org"), "it": ("d@example.org",), "ghosts": ()}
"""Nobody made the list `ghosts`, so what goes there has no targets."""
PARKS_UNCERTAIN = {"it"}

LIVE = ("pending", "retrying")
EDGES = {
    "pending": {"pending", "retrying", "delivered", "parked"},
    "retrying": {"retrying", "delivered", "parked"},
    "parked": {"parked", "pending", "discarded"},
    "delivered": {"delivered"},
    "discarded": {"discarded"},
}
"""What may become of what; only an operator takes a parked row anywhere."""


@dataclass
class Attempt:
    cycle: int
    node: str
    is_lone: bool
    outcome: str | None = None


@dataclass
class Row:
    list_name: str
    created_at: datetime
    status: str = "pending"
    retry_count: int = 0
    cycle: int = 1
    cycle_started_at: datetime | None = None
    due_at: datetime | None = None
    next_attempt_at: datetime | None = None
    last_attempt_at: datetime | None = None
    delivered_at: datetime | None = None
    terminal_at: datetime | None = None
    held_by: str | None = None
    version: int = 1
    owner: str | None = None
    token: int = 0
    lease_until: datetime | None = None
    orphan_count: int = 0
    targets: dict[str, str] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    story: Counter[str] = field(default_factory=Counter)

    @classmethod
    def submitted(cls, list_name: str, now: datetime) -> "Row":
        story = Counter(["notify_send submitted"])
        return cls(list_name, now, cycle_started_at=now, due_at=now, story=story)

    # Who may take it

    def is_claimed(self, now: datetime) -> bool:
        return self.lease_until is not None and self.lease_until > now

    @property
    def orphans(self) -> int:
        """With the one that nobody has counted yet."""
        return self.orphan_count + (self.lease_until is not None)

    def is_free(self, now: datetime) -> bool:
        return self.held_by is None and self.is_due(now) and not self.is_claimed(now)

    def is_due(self, now: datetime) -> bool:
        return self.due_at is not None and self.due_at <= now

    # Claims

    def is_lone_due(self, now: datetime) -> bool:
        """Orphaned twice; after the orphan of a lone attempt it waits for a while."""
        wait = timedelta(seconds=10 * 2 ** min(self.orphans - 3, 8)) if self.orphans > 2 else timedelta(0)
        waits = self.lease_until is not None and self.lease_until + wait > now
        return self.is_free(now) and self.orphans >= 2 and not waits

    def take(self, node: str, now: datetime, *, is_lone: bool = False) -> None:
        if self.token in self.attempts and self.attempts[self.token].outcome is None:
            self.attempts[self.token].outcome = "abandoned"
        self.orphan_count = self.orphans
        self.token += 1
        self.owner = node
        self.lease_until = now + timedelta(seconds=LEASE_S)
        self.attempts[self.token] = Attempt(self.cycle, node, is_lone)
        if not self.targets:
            self.targets = dict.fromkeys(TARGETS[self.list_name], "due")

    def is_held_by(self, node: str, token: int) -> bool:
        """Whether the claim is still this one; past its lease it is, until somebody takes the row."""
        return (self.owner, self.token) == (node, token)

    def give_back(self) -> None:
        self.attempts[self.token].outcome = "released"
        self.owner = self.lease_until = None

    def finish(self, node: str, token: int, outcome: str, results: dict[str, str], at: datetime) -> bool:
        """The end of an attempt; False when it comes too late, and then only its attempt and the audit know of it."""
        attempt = self.attempts[token]
        if attempt.outcome not in (None, "abandoned"):
            return True
        attempt.outcome = outcome
        if not self.is_held_by(node, token):
            self.story["notify_deliver skipped"] += 1
            return False
        self.story["notify_deliver attempted"] += 1
        self.version += 1
        self.orphan_count = 0
        self.owner = self.lease_until = None
        self.last_attempt_at = at
        if outcome == "held" and at - self._started < HOLD_MAX:
            self.held_by, self.due_at = BREAKER, at + HOLD
            return True
        self.held_by = self.due_at = self.next_attempt_at = None
        self._settle(outcome, results, at)
        return True

    def _settle(self, outcome: str, results: dict[str, str], at: datetime) -> None:
        general = {"delivered": "delivered", "permanent_failure": "failed"}.get(outcome, "due")
        reached_before = list(self.targets.values()).count("delivered")
        for address in self.due:
            self.targets[address] = results.get(address, general) if outcome != "held" else "due"
        has_progress = list(self.targets.values()).count("delivered") > reached_before
        is_owed = bool(self.due) if self.targets else outcome in ("transient_failure", "uncertain")
        if outcome == "held" or (outcome == "uncertain" and is_owed and self.list_name in PARKS_UNCERTAIN):
            self._park(at)
        elif is_owed:
            self.retry_count += not has_progress
            if self.retry_count >= ATTEMPTS_MAX or at - self._started >= HOLD_MAX:
                self._park(at)
            else:
                self.status = "retrying"
                self.next_attempt_at = self.due_at = at + DELAY
        elif (outcome == "permanent_failure" and not self.targets) or "failed" in self.targets.values():
            self._park(at)
        else:
            self.status, self.delivered_at, self.terminal_at = "delivered", at, at
            self.story["notify_deliver delivered"] += 1

    def _park(self, at: datetime) -> None:
        for address in self.due:
            self.targets[address] = "failed"
        self.status, self.terminal_at = "parked", at
        self.story["notify_deliver parked"] += 1

    # Holds

    def may_be_held(self, now: datetime) -> bool:
        return self.is_free(now) and self.orphan_count == 0

    def hold(self, until: datetime) -> None:
        self.held_by, self.due_at = BREAKER, until
        self.version += 1

    def come_free(self, now: datetime) -> None:
        assert self.due_at is not None
        self.held_by, self.due_at = None, min(self.due_at, now)
        self.version += 1

    # What operators do

    def act(self, act: str, now: datetime) -> None:
        self.version += 1
        if act == "retry":
            self.status, self.cycle, self.retry_count = "pending", self.cycle + 1, 0
            self.due_at = self.cycle_started_at = now
            self.terminal_at = None
            self.targets = {a: "due" if was == "failed" else was for a, was in self.targets.items()}
            self.story["operator_action submitted"] += 1
        else:
            self.status, self.terminal_at = "discarded", now
            self.story["operator_action discarded"] += 1

    @property
    def due(self) -> list[str]:
        return sorted(address for address, was in self.targets.items() if was == "due")

    @property
    def _started(self) -> datetime:
        assert self.cycle_started_at is not None
        return self.cycle_started_at


def differences(expected: Row, found: Row) -> list[str]:
    """In words, what is not as it should be."""
    pairs = ((f.name, getattr(expected, f.name), getattr(found, f.name)) for f in fields(Row))
    return [f"{name} is {found!r}, should be {wanted!r}" for name, wanted, found in pairs if found != wanted]


def contradictions(row: Row) -> list[str]:
    """Where the audit, the attempts and the row tell different stories; by themselves, without the model."""
    told, ends = (
        row.story,
        [a.outcome for a in row.attempts.values() if a.outcome not in (None, "released", "abandoned")],
    )
    parked = told["notify_deliver parked"]
    claims = {
        "it was sent once": told["notify_send submitted"] == 1,
        "every end is told, on time or late": (
            told["notify_deliver attempted"] + told["notify_deliver skipped"] == len(ends)
        ),
        "every cycle but the first began with an operator": row.cycle == 1 + told["operator_action submitted"],
        "every cycle but this one ended parked": (parked == row.cycle - 1 + (row.status in ("parked", "discarded"))),
        "delivered is told exactly when it is": told["notify_deliver delivered"] == (row.status == "delivered"),
        "discarded is told exactly when it is": told["operator_action discarded"] == (row.status == "discarded"),
        "a terminal row is in nobody's hands": row.status in LIVE or row.owner is None,
        "nothing is due on a terminal row": row.status in LIVE or not row.due,
        "no cycle has more failures than its policy": row.retry_count <= ATTEMPTS_MAX,
        "every claim began an attempt": sorted(row.attempts) == list(range(1, row.token + 1)),
        "a parked row has a target for Retry": (
            row.status != "parked" or not row.targets or "failed" in row.targets.values()
        ),
        "delivered means all targets have it": row.status != "delivered" or set(row.targets.values()) <= {"delivered"},
    }
    return [f"not so: {claim}" for claim, holds in claims.items() if not holds]
