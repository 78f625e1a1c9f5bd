"""What looking whether all is well comes to: checks, each with its verdict, and the worst of all.

Readiness of a node, `fieldpost doctor` and `fieldpost site doctor` speak these words.
"""

from dataclasses import dataclass
from enum import StrEnum

DISK_FAILING_BYTES = 100 * 1024**2
DISK_WARNING_BYTES = 1024**3


class CheckVerdict(StrEnum):
    """Of a check. A warning is for people to look at; what fails keeps a node from being ready."""

    OK = "ok"
    WARNING = "warning"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    verdict: CheckVerdict
    detail: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> CheckVerdict:
        """The worst of all."""
        order = (CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.FAILING)
        return max((check.verdict for check in self.checks), key=order.index)


def room_check(free_bytes: int, place: str) -> Check:
    """Whether there is room enough on the disk of this place."""
    detail = f"{free_bytes / 1024**3:.1f} GiB free in {place}"
    if free_bytes < DISK_FAILING_BYTES:
        return Check("disk", CheckVerdict.FAILING, detail)
    return Check("disk", CheckVerdict.WARNING if free_bytes < DISK_WARNING_BYTES else CheckVerdict.OK, detail)
