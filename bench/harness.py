"""Compare ours with a reference: interleaved rounds, medians, spread; output as a table or JSON lines."""

import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from fieldpost.run import logs

Round = Callable[[], Awaitable[float]]
"""One round of work; returns its figure (rows per second)."""


@dataclass(frozen=True)
class Figure:
    """One line of a benchmark's report; `ratio` is ours / reference, higher is better."""

    name: str
    ours: float
    unit: str
    reference: float | None = None
    spread: float = 0.0
    notes: str = ""

    @property
    def ratio(self) -> float | None:
        return self.ours / self.reference if self.reference else None


@dataclass
class Report:
    """Print each figure as it arrives."""

    as_json: bool = False
    figures: list[Figure] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        self.figures.append(figure)
        if self.as_json:
            line = {
                "name": figure.name,
                "ratio": figure.ratio,
                "reference": figure.reference,
                "ours": figure.ours,
                "unit": figure.unit,
                "spread": figure.spread,
                "notes": figure.notes,
            }
            print(json.dumps({k: v for k, v in line.items() if v is not None}), flush=True)
            return
        if len(self.figures) == 1:
            print(f"{'benchmark':38} {'ours':>11} {'reference':>11} {'ratio':>6} {'spread':>7}  unit, notes")
        reference = f"{figure.reference:11,.1f}" if figure.reference else " " * 11
        ratio = f"{figure.ratio:6.2f}" if figure.ratio else " " * 6
        print(
            f"{figure.name:38} {figure.ours:11,.1f} {reference} {ratio} {figure.spread:6.0%}  {figure.unit}"
            f"{', ' + figure.notes if figure.notes else ''}",
            flush=True,
        )


async def compare(name: str, ours: Round, reference: Round, rounds: int, unit: str, notes: str) -> Figure:
    """Alternate both, so that a slow moment of the machine affects both."""
    figures: tuple[list[float], list[float]] = ([], [])
    await reference()
    await ours()
    for _ in range(rounds):
        figures[1].append(await reference())
        figures[0].append(await ours())
    ours_median, reference_median = (statistics.median(values) for values in figures)
    return Figure(name, ours_median, unit, reference_median, _spread(figures[0]), notes)


def _spread(values: list[float]) -> float:
    """Spread: (fastest - slowest) / median."""
    return (max(values) - min(values)) / statistics.median(values)


class Stopwatch:
    def __init__(self) -> None:
        self._began = time.perf_counter()

    def rate(self, count: int) -> float:
        return count / (time.perf_counter() - self._began)


def log_to_nowhere() -> None:
    """Log as in production, one line per attempt, but discard the output."""
    logs.configure(stream=open(os.devnull, "w"))  # noqa: SIM115


def percentile(values: Iterable[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
