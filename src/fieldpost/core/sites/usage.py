"""How much of central a site uses: its live notifications, which are pending, retrying or parked, and their bytes."""

from dataclasses import dataclass

WARNING_SHARE = 0.8
"""The share of a ceiling from which health warns."""


@dataclass(frozen=True, slots=True)
class SiteUsage:
    """The live notifications of a site, and the bytes of their subjects and bodies."""

    rows: int = 0
    bytes: int = 0

    def plus(self, other: "SiteUsage") -> "SiteUsage":
        return SiteUsage(self.rows + other.rows, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class SiteCeilings:
    """The most that one site may use."""

    rows_max: int = 2_000_000
    bytes_max: int = 4 * 1024**3

    def share(self, usage: SiteUsage) -> float:
        """The used share of the ceiling that is closest; 1 or more means that the site is full."""
        return max(usage.rows / self.rows_max, usage.bytes / self.bytes_max)
