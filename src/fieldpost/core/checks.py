"""Health checks and their overall verdict.

Used by a node's readiness, `fieldpost doctor` and `fieldpost site doctor`.
"""

from dataclasses import dataclass
from enum import StrEnum

DISK_FAILING_BYTES = 100 * 1024**2
DISK_WARNING_BYTES = 1024**3


class CheckVerdict(StrEnum):
    """The result of a check. A warning needs attention; a failing check makes a node not ready."""

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
        """The worst verdict of all checks."""
        order = (CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.FAILING)
        return max((check.verdict for check in self.checks), key=order.index)

    @property
    def is_ready(self) -> bool:
        return self.verdict is not CheckVerdict.FAILING


def folder_access_check(mode: int, folder: str) -> Check | None:
    """A warning if every user of the machine can open the folder; its files may be locked or replaced by them."""
    if not mode & 0o007:
        return None
    detail = f"every user of this machine can open {folder} (mode {mode & 0o7777:04o}): chmod o= {folder}"
    return Check("access", CheckVerdict.WARNING, detail)


def free_space_check(free_bytes: int, path: str) -> Check:
    """Check the free disk space at this path."""
    detail = f"{free_bytes / 1024**3:.1f} GiB free in {path}"
    if free_bytes < DISK_FAILING_BYTES:
        return Check("disk", CheckVerdict.FAILING, detail)
    return Check("disk", CheckVerdict.WARNING if free_bytes < DISK_WARNING_BYTES else CheckVerdict.OK, detail)
