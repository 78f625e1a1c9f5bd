"""Documentation: links resolve, named files exist, generated pages are up to date."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.central.adapters.email.settings import EmailSettings
from fieldpost.central.store.schema.notification_tables import notifications
from fieldpost.cli.commands import app
from fieldpost.cli.main import EXIT_CODES
from fieldpost.link import credentials
from fieldpost.run.settings import CentralSettings
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.config.definitions import SECTIONS, defined_keys
from fieldpost.site.config.folder import OPTIONS
from fieldpost.site.site import Site

PAGES_FOR_THE_CHECK = ("kpis.md", "metrics.md", "settings.md")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:src|tests|tools|docs|requirements)/[A-Za-z0-9_./-]*)`")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# A password prompt is fine; the prompt of a language model is not.
WORKPLACE = re.compile(
    r"/work/|/tmp/|/root\b|\bAI\b|\bLLM\b|\b(?:system|model|assistant)(?:'s)? prompt\b|\bprompt engineer|copilot",
    re.IGNORECASE,
)


def pages(project: Path) -> list[Path]:
    return sorted([*project.glob("*.md"), *(project / "docs").rglob("*.md")])


def test_every_relative_link_leads_to_a_file_and_a_heading(project: Path) -> None:
    broken = [
        f"{page.relative_to(project)}: {target}"
        for page in pages(project)
        for target in LINK.findall(FENCE.sub("", page.read_text()))
        if not re.match(r"https?://|mailto:", target) and not resolves(page, target)
    ]
    assert broken == []


def test_every_page_can_be_reached_from_the_index(project: Path) -> None:
    index = project / "docs/index.md"
    seen: set[Path] = set()
    waiting = [index]
    while waiting:
        page = waiting.pop()
        if page not in seen and page.suffix == ".md" and page.is_relative_to(project / "docs"):
            seen.add(page)
            waiting += [(page.parent / t.partition("#")[0]).resolve() for t in LINK.findall(page.read_text())]
    assert sorted(set((project / "docs").rglob("*.md")) - seen) == []


def test_every_file_named_in_the_docs_exists(project: Path) -> None:
    missing = [
        f"{page.relative_to(project)}: {name}"
        for page in pages(project)
        for line in page.read_text().splitlines()
        if "does not exist yet" not in line
        for name in FILE.findall(line)
        if not (project / name).exists()
    ]
    assert missing == []


def test_the_tree_shows_every_package_and_marks_the_empty_ones(project: Path) -> None:
    tree = (project / "docs/explanation/architecture.md").read_text()
    shown = re.findall(r"^ {6}( {2})?(\w+)/ +(○?)", tree, re.MULTILINE)
    source = project / "src/fieldpost"
    packages = {("", folder.name): folder for folder in source.iterdir() if (folder / "__init__.py").exists()}
    for place in ("central", "site"):
        packages |= {("  ", f.name): f for f in (source / place).iterdir() if (f / "__init__.py").exists()}
    empty = {
        package for package, folder in packages.items() if all(p.name == "__init__.py" for p in folder.rglob("*.py"))
    }
    assert {(depth, name) for depth, name, _ in shown} == set(packages)
    assert {(depth, name) for depth, name, mark in shown if mark} == empty


def test_the_architecture_page_names_only_existing_modules_classes_and_functions(project: Path) -> None:
    page = (project / "docs/explanation/architecture.md").read_text()
    [walk] = re.findall(r"^## One notification through the code$(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    packages = {path.stem for path in (project / "src/fieldpost").iterdir() if not path.name.startswith("_")}
    spans = set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", FENCE.sub("", page)))
    named = {span for span in spans if span.partition(".")[0] in packages and not span.endswith((".py", ".toml"))}
    assert len([name for name in named if name in walk]) > 50, "the walk names the functions it describes"
    assert sorted(name for name in named if not exists(f"fieldpost.{name}")) == []


@pytest.mark.parametrize(
    "name", ["core.lifecycle.decide_all", "core.no_such_module.decide", "site.notify.ListSender.post", "centre"]
)
def test_the_check_of_names_finds_missing_ones(name: str) -> None:
    assert not exists(f"fieldpost.{name}")


def test_generated_pages_are_fresh(project: Path) -> None:
    result = reference(project, "--check")
    assert result.returncode == 0, result.stderr


def test_a_stale_or_missing_generated_page_is_found(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(project / "tools/reference"))
    spec = spec_from_file_location("reference_tool", project / "tools/reference/__main__.py")
    assert spec
    assert spec.loader
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    # Three pages that are rendered quickly.
    monkeypatch.setattr(tool, "PAGES", {name: tool.PAGES[f"reference/{name}"] for name in PAGES_FOR_THE_CHECK})
    shutil.copytree(project / "docs/reference", tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(sys, "argv", ["reference", "--folder", str(tmp_path), "--check"])
    assert tool.main() == 0
    stale, missing, _ = PAGES_FOR_THE_CHECK
    (tmp_path / stale).write_text("# Old\n")
    (tmp_path / missing).unlink()
    assert tool.main() == 1
    assert re.findall(r"docs/(\S+) is out of date", capsys.readouterr().err) == [stale, missing]


def test_every_setting_is_documented(project: Path) -> None:
    text = (project / "docs/reference/settings.md").read_text()
    for section in fields(CentralSettings):
        for option in fields(getattr(CentralSettings(), section.name)):
            assert f"`FIELDPOST_{section.name.upper()}__{option.name.upper()}`" in text
    parts = dict(re.findall(r"^### `\[(\S+)\]` of a site\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL))
    sections = {section: [option.name for option in fields(kind)] for section, kind in OPTIONS.items()}
    sections |= {f"{section}.NAME": list(defined_keys(kind)) for kind, section in SECTIONS.items()}
    assert sections == {name: re.findall(r"^\| `(\w+)`", part, re.MULTILINE) for name, part in parts.items()}


def test_every_setting_of_an_email_channel_is_documented_with_its_default(project: Path) -> None:
    text = (project / "docs/reference/email-channel.md").read_text()
    given = {"host": "mail.example.org", "tls": "starttls", "from_address": "ops@example.org"}
    settings = EmailAdapter().check_settings(given)
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE))
    assert set(rows) == {field.name for field in fields(EmailSettings)}
    for name in set(rows) - {"port"}:
        default = settings.get(name, "")
        shown = f"`{default:g}`" if isinstance(default, int | float) else f"`{default}`" if default else "none"
        assert rows[name] == ("required" if name in given else shown)


def test_every_error_code_that_a_command_or_script_can_show_is_documented(project: Path) -> None:
    """Search by regular expression, unlike the generator, to find codes that the generator misses."""
    text = (project / "docs/reference/errors.md").read_text()
    kinds = "|".join(kind.__name__ for kind in EXIT_CODES)
    raised = re.compile(rf'\b(?:{kinds})\(\s*"([a-z_.0-9]+)"')
    codes = {code for file in (project / "src/fieldpost").rglob("*.py") for code in raised.findall(file.read_text())}
    assert len(codes) > 50
    assert sorted(code for code in codes if f"| `{code}` |" not in text) == []


def test_every_command_is_documented(project: Path) -> None:
    text = (project / "docs/reference/cli.md").read_text()
    commands = list(leaves(typer.main.get_command(app), "fieldpost"))
    assert len(commands) > 15
    assert [command for command in commands if f"## `{command}`" not in text] == []


def test_the_coverage_report_lists_missing_commands_and_pages(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps between API, console and command line are reported, they do not fail."""
    monkeypatch.syspath_prepend(str(project / "tools/reference"))
    import console_pages
    import page_coverage

    known = page_coverage.render(project).count("**missing**")
    monkeypatch.delitem(page_coverage.COMMANDS, "notifications_retry")
    monkeypatch.delitem(console_pages.PAGES_OF, "audit_page")
    report = page_coverage.render(project)
    assert "- Endpoints without a command: `notifications_retry`" in report
    assert re.search("^- Endpoints without a console page: .*`audit_page`", report, re.MULTILINE)
    assert "- Console pages without an endpoint: `GET /audit`" in report
    assert report.count("**missing**") == known + 2


def test_the_first_script_of_the_readme_sends(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, _ = re.findall(r"^```python\n(.*?)^```", (project / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    token = credentials.issue("site", bytes(credentials.ENTROPY_BYTES)).text
    Site.create(tmp_path / "pump-station", "pump-station", "http://127.0.0.1:9", token).close()
    monkeypatch.chdir(tmp_path)
    exec(compile(script, "README.md", "exec"), {})
    buffer = Buffer(tmp_path / "pump-station" / "buffer.db")
    (message,) = buffer.take(datetime.now(UTC), items_max=10, bytes_max=10_000)
    buffer.close()
    assert "Pump 3 stopped" in message.payload


def test_the_first_event_of_the_readme_is_committed_with_its_order(project: Path) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
    from sqlalchemy.pool import StaticPool

    from fieldpost.outbox import Outbox
    from fieldpost.testing import outbox_events

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        number: Mapped[int] = mapped_column(primary_key=True)

    _, script = re.findall(r"^```python\n(.*?)^```", (project / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    engine = create_engine("sqlite://", poolclass=StaticPool)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        Outbox.create_tables(connection)
    exec(script, {"Session": Session, "engine": engine, "Order": Order})
    with Session(engine) as session:
        assert [order.number for order in session.query(Order)] == [17]
        assert [event.payload for event in outbox_events(session)] == [{"order": 17}]
    engine.dispose()


def test_the_docs_do_not_mention_the_workplace(project: Path) -> None:
    found = [
        f"{page.relative_to(project)}: {match[0]}"
        for page in pages(project)
        for match in WORKPLACE.finditer(page.read_text())
    ]
    assert found == []


def exists(name: str) -> bool:
    """Whether the dotted name is a module, or an attribute of one (a class, function, method or constant)."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            found: Any = import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def leaves(command: Any, path: str) -> Iterator[str]:
    commands: dict[str, Any] = getattr(command, "commands", {})
    if not commands:
        yield path
    for name, child in commands.items():
        yield from leaves(child, f"{path} {name}")


def resolves(page: Path, target: str) -> bool:
    name, _, heading = unquote(target).partition("#")
    file = page if not name else (page.parent / name)
    return file.exists() and (not heading or heading in anchors(file))


def anchors(file: Path) -> Iterator[str]:
    """The anchors of a page's headings: lower case, dashes for spaces, no other punctuation."""
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", file.read_text()), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def reference(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(project / "tools/reference"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_record_on_indexes_lists_the_declared_ones(project: Path) -> None:
    page = (project / "docs/adr/0022-indexes-and-kept-plans.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    declared = [str(index.name).removeprefix("ix_notifications_") for index in notifications.indexes]
    assert sorted(listed) == sorted(declared)
