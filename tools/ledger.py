#!/usr/bin/env python3
"""Report which lines of docs/contributing/requirements.md are cited by tests.

    tools/ledger.py                     counts per group
    tools/ledger.py --missing           the lines that no test cites
    tools/ledger.py --missing ING TRK   only these groups
    tools/ledger.py --write             write docs/contributing/citations.md (make docs)
    tools/ledger.py --check             fail if that file is out of date or a test cites a line that does not exist

A test cites a line with ``@pytest.mark.req("ING-03", "ING-04")``, a decision also with ``@pytest.mark.dec("DEC-03")``,
and numbered rows of docs/contributing/faults.md with ``fault``, ``bad_input`` and ``threat``. A citation promises that
the test fails if the line stops being true; this script only collects citations. It needs the standard library only.
"""

import argparse
import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEDGER = Path("docs/contributing/requirements.md")
CATALOGUE = Path("docs/contributing/faults.md")
CITATIONS = Path("docs/contributing/citations.md")
LINE = re.compile(r"^- ([A-Z]{2,3}-\d{2}) (.+)$", re.MULTILINE)
ROW = re.compile(r"^\| (\d+) \|", re.MULTILINE)
# Marker to section title, both in the catalogue and on the citations page.
NUMBERED = {"fault": "Faults", "bad_input": "Bad input", "threat": "Threats"}
# Resolutions and open questions may be cited but are not counted: lines and decisions repeat their content.
NOT_COUNTED = ("RES", "OPN")

Citations = dict[str, dict[str, set[str]]]  # mark, then id or number, then the files that cite it


def main() -> int:
    parser = argparse.ArgumentParser(description="Report which requirements are cited by tests.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    parser.add_argument("--missing", nargs="*", metavar="GROUP", help="print the lines that no test cites")
    parser.add_argument("--write", action="store_true", help=f"write {CITATIONS}")
    parser.add_argument("--check", action="store_true", help="fail on stale citations or unknown ids")
    given = parser.parse_args()

    lines = read_ledger(given.root)
    citations = read_citations(given.root)
    if given.write:
        (given.root / CITATIONS).write_text(render(lines, citations))
    if given.missing is not None:
        print_missing(lines, citations, given.missing)
    elif given.check:
        return check(given.root, lines, citations)
    elif not given.write:
        print_counts(lines, citations)
    return 0


def read_ledger(root: Path) -> dict[str, str]:
    return dict(LINE.findall((root / LEDGER).read_text()))


def read_catalogue(root: Path) -> dict[str, set[str]]:
    """Row numbers by marker."""
    parts = re.split(r"^## (.+)$", (root / CATALOGUE).read_text(), flags=re.MULTILINE)
    rows = {title: set(ROW.findall(text)) for title, text in zip(parts[1::2], parts[2::2], strict=True)}
    return {mark: rows.get(title, set()) for mark, title in NUMBERED.items()}


def read_citations(root: Path) -> Citations:
    citations: Citations = defaultdict(lambda: defaultdict(set))
    for path in sorted((root / "tests").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        for node in ast.walk(ast.parse(path.read_text(), name)):
            if isinstance(node, ast.Call) and (mark := mark_of(node)):
                for argument in node.args:
                    if not isinstance(argument, ast.Constant):
                        sys.exit(f"{name}:{node.lineno}: cite with plain values, so that this script can read it")
                    citations[mark][str(argument.value)].add(name)
    return citations


def mark_of(call: ast.Call) -> str | None:
    """The marker of a ``pytest.mark.X(...)`` call. Decisions are lines too, so ``dec`` counts as ``req``."""
    match call.func:
        case ast.Attribute(attr=mark, value=ast.Attribute(attr="mark", value=ast.Name(id="pytest"))):
            if mark in ("req", "dec"):
                return "req"
            return mark if mark in NUMBERED else None
    return None


def counted(lines: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in lines.items() if not name.startswith(NOT_COUNTED)}


def print_missing(lines: dict[str, str], citations: Citations, groups: list[str]) -> None:
    for name, text in counted(lines).items():
        if name not in citations["req"] and (not groups or group_of(name) in groups):
            print(name, text)


def print_counts(lines: dict[str, str], citations: Citations) -> None:
    groups: dict[str, list[bool]] = defaultdict(list)
    for name in counted(lines):
        groups[group_of(name)].append(name in citations["req"])
    for group, cited in groups.items():
        print(f"{group:4} {sum(cited):3} of {len(cited):3}")
    print(f"{sum(map(sum, groups.values()))} of {len(counted(lines))} lines are cited by a test")


def check(root: Path, lines: dict[str, str], citations: Citations) -> int:
    problems = [
        f"{', '.join(sorted(files))}: cites {name}, which is not in {LEDGER}"
        for name, files in sorted(citations["req"].items())
        if name not in lines
    ]
    catalogue = read_catalogue(root)
    problems += [
        f"{', '.join(sorted(files))}: cites {mark} {number}, which is not in {CATALOGUE}"
        for mark in NUMBERED
        for number, files in sorted(citations[mark].items())
        if number not in catalogue[mark]
    ]
    file = root / CITATIONS
    if not file.exists() or file.read_text() != render(lines, citations):
        problems.append(f"{CITATIONS} is out of date: run make docs")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def render(lines: dict[str, str], citations: Citations) -> str:
    parts = [
        "# Citations",
        "Generated by `make docs` from the markers of the tests. Lines and decisions are in\n"
        "[requirements](requirements.md), numbered rows in [faults](faults.md).",
        "## Lines and decisions",
        table(citations["req"], order=list(lines)),
    ]
    for mark, title in NUMBERED.items():
        parts += [f"## {title}", table(citations[mark], order=sorted(citations[mark], key=natural))]
    return "\n\n".join(parts) + "\n"


def table(cited: dict[str, set[str]], order: list[str]) -> str:
    rows = [f"| {name} | {', '.join(f'`{file}`' for file in sorted(cited[name]))} |" for name in order if name in cited]
    if not rows:
        return "None."
    return "\n".join(["| line | tests |", "|---|---|", *rows])


def natural(name: str) -> tuple[int, str]:
    return (int(name) if name.isdecimal() else 0, name)


def group_of(name: str) -> str:
    return name.partition("-")[0]


if __name__ == "__main__":
    sys.exit(main())
