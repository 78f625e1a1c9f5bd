"""Rules for source and project files: docstrings, pinned requirements, SQL packages, citations."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest

STATEMENTS = (
    r"select\s.+\sfrom\s",
    r"insert\s+(or\s+\w+\s+)?into\s",
    r"update\s+\w+\s+set\s",
    r"delete\s+from\s",
    r"create\s+(unique\s+)?(table|index)\s",
    r"with\s+\w+\s+as\s+\(",
)
SQL = re.compile(rf"\s*({'|'.join(STATEMENTS)})", re.IGNORECASE | re.DOTALL)
MIGRATIONS = "fieldpost/central/store/schema/migrations/versions"
SQL_PACKAGES = ("central/store/", "outbox/", "site/buffer/", "site/repair/")


def test_modules_and_folders_stay_small(project: Path) -> None:
    """At most 400 lines in a module and 24 modules in a folder; migrations pile up and are left out."""
    modules = [
        path for path in (project / "src").rglob("*.py") if not path.is_relative_to(project / "src" / MIGRATIONS)
    ]
    assert [str(path) for path in modules if len(path.read_text().splitlines()) > 400] == []
    folders = Counter(str(path.parent.relative_to(project)) for path in modules)
    assert {folder: count for folder, count in folders.items() if count > 24} == {}


def test_one_public_name_of_a_type_means_one_thing(project: Path) -> None:
    found: dict[str, list[str]] = {}
    for path in sorted((project / "src").rglob("*.py")):
        for name in public_types(ast.parse(path.read_text())):
            found.setdefault(name, []).append(str(path.relative_to(project)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def public_types(module: ast.Module) -> Iterator[str]:
    """The public classes and type aliases that a module defines."""
    for node in module.body:
        match node:
            case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                if name[0].isupper() and not name.isupper():
                    yield name


def test_every_module_has_a_docstring(project: Path) -> None:
    missing = [
        str(path.relative_to(project))
        for path in (project / "src").rglob("*.py")
        if not path.is_relative_to(project / "src" / MIGRATIONS)
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert missing == []


@pytest.mark.threat(25)
def test_requirements_are_pinned_with_hashes_and_name_no_registry(project: Path) -> None:
    files = sorted((project / "requirements").glob("*.txt"))
    assert [file.name for file in files] == [
        *("apprise.txt", "base.txt", "central.txt", "dev.txt", "relay-mariadb.txt", "relay-postgresql.txt"),
        *("setup.txt", "site-postgresql.txt", "uv.txt", "zgw.txt"),
    ]
    for file in files:
        for line in file.read_text().splitlines():
            assert re.match(r"[a-z0-9-]+==\S+( ;.*)? \\$|    --hash=sha256:[0-9a-f]{64}( \\)?$", line), (
                f"{file.name}: {line}"
            )


LICENCES = {
    "MIT": "MIT",
    "Apache": "Apache-2.0",
    "BSD": "BSD",
    "PSF": "PSF-2.0",
    "Python Software Foundation": "PSF-2.0",
    "ISC": "ISC",
    "OSI": "OSI",
    "zlib": "zlib",
}


@pytest.mark.threat(25)
def test_every_run_time_dependency_has_its_line_and_licence(project: Path) -> None:
    """A new package, or another licence of a known one, is a decision and not an accident of an upgrade."""
    page = (project / "docs/adr/0015-dependencies.md").read_text()
    lines = dict(re.findall(r"^\| ([a-z0-9-]+) \| ([^|]+) \|", page, re.MULTILINE))
    lines.pop("package", None)
    run = {
        name for kind in ("base", "central", "site-postgresql") for name in pins(project / f"requirements/{kind}.txt")
    }
    assert set(lines) == run
    for name, licence in lines.items():
        assert licences_in(licence), f"{name} has no licence that we know"
        if installed := licences_of(name):
            assert licences_in(licence) == installed, name


def licences_in(text: str) -> set[str]:
    return {known for word, known in LICENCES.items() if word.lower() in text.lower()}


def licences_of(name: str) -> set[str]:
    """The licences that the installed package declares; empty if it declares none or is not for this platform."""
    try:
        declared = metadata(name)
    except PackageNotFoundError:
        return set()
    classifiers = [one for one in declared.get_all("Classifier") or [] if one.startswith("License ::")]
    return licences_in(
        " ".join([declared.get("License-Expression") or declared.get("License") or "", *classifiers]).replace(
            "OSI Approved", ""
        )
    )


def test_the_project_file_names_no_registry(project: Path) -> None:
    text = (project / "pyproject.toml").read_text()
    assert not re.search(r"index-url|find-links|\[\[?tool\.uv\.(index|sources)|@ (https?|file):", text)


@pytest.mark.threat(30)
def test_every_folder_that_fieldpost_creates_is_for_its_owner_only(project: Path) -> None:
    calls = [
        (str(path.relative_to(project)), ast.unparse(node))
        for path in (project / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("mkdir", "makedirs")
    ]
    assert len(calls) >= 5
    assert [call for call in calls if f"mode={0o700}" not in call[1]] == []


@pytest.mark.parametrize("variant", ["base", "central", "site-postgresql"])
def test_tests_run_with_the_versions_that_fieldpost_runs_with(project: Path, variant: str) -> None:
    run, dev = (pins(project / "requirements" / f"{name}.txt") for name in (variant, "dev"))
    assert {name: dev.get(name) for name in run} == run


def test_base_install_holds_no_package_of_central(project: Path) -> None:
    base, postgresql, central = (
        pins(project / "requirements" / f"{name}.txt") for name in ("base", "site-postgresql", "central")
    )
    assert postgresql.keys() - base.keys() == {"asyncpg"}
    assert base.keys() < central.keys(), "tools/wheels downloads the wheels of central for all variants"
    server = {"sqlalchemy", "alembic", "starlette", "uvicorn", "asyncpg", "argon2-cffi", "prometheus-client", "jinja2"}
    assert not base.keys() & (server | {"aiosmtplib", "cryptography", "websockets", "httptools", "fastapi"})


@pytest.mark.req("CFG-14")
def test_sql_is_written_only_in_its_packages(project: Path) -> None:
    source = project / "src/fieldpost"
    found = [
        f"{name}:{line}: {text[:60]!r}"
        for path in sorted(source.rglob("*.py"))
        if not (name := path.relative_to(source).as_posix()).startswith(SQL_PACKAGES)
        for line, text in strings_of(path)
        if is_sql(text)
    ]
    assert found == []


def test_only_the_clock_reads_the_wall_clock(project: Path) -> None:
    source = project / "src/fieldpost"
    reads = re.compile(r"\b(datetime\.(now|utcnow|today)|date\.today|time\.time|time\.time_ns)\(")
    found = [path.relative_to(source).as_posix() for path in source.rglob("*.py") if reads.search(path.read_text())]
    assert found == ["clock.py"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM b",
        "\n  insert into t values (1)",
        "INSERT OR IGNORE INTO t",
        "update t set a = 1",
        "delete from t",
    ],
)
def test_the_search_for_sql_finds_sql(text: str) -> None:
    assert is_sql(text)


@pytest.mark.parametrize("text", ["Select a list from the menu.", "update the set-up", "Delete from here on"])
def test_the_search_for_sql_lets_prose_pass(text: str) -> None:
    assert not is_sql(text)


def test_every_cited_line_exists_and_the_citations_page_is_fresh(project: Path) -> None:
    result = ledger(project, "--check")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("citation", "complaint"),
    [
        ('pytest.mark.req("ING-01", "ING-99")', "tests/test_it.py: cites ING-99"),
        ("pytest.mark.fault(1, 99)", "tests/test_it.py: cites fault 99"),
        ("pytest.mark.bad_input(2, 1)", "tests/test_it.py: cites bad_input 1"),
        ("pytest.mark.threat(3, 2)", "tests/test_it.py: cites threat 2"),
        ('pytest.mark.req("ING-01"), pytest.mark.fault(1), pytest.mark.bad_input(2), pytest.mark.threat(3)', None),
    ],
)
def test_a_citation_of_an_unknown_line_or_row_is_found(
    project: Path, tmp_path: Path, citation: str, complaint: str | None
) -> None:
    folder = tmp_path / "docs/contributing"
    folder.mkdir(parents=True)
    (folder / "requirements.md").write_text("- ING-01 A line.\n")
    (folder / "faults.md").write_text("## Faults\n| 1 | a |\n## Bad input\n| 2 | b |\n## Threats\n| 3 | c |\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_it.py").write_text(f"import pytest\n\npytestmark = [{citation}]\n")
    ledger(project, "--root", str(tmp_path), "--write")
    result = ledger(project, "--root", str(tmp_path), "--check")
    expected = [] if complaint is None else [f"{complaint}, which is not in docs/contributing/{page(citation)}.md"]
    assert result.stderr.splitlines() == expected
    assert result.returncode == (1 if complaint else 0)


def page(citation: str) -> str:
    return "requirements" if ".req(" in citation else "faults"


def is_sql(text: str) -> bool:
    """Whether the text begins like an SQL statement. Sentence case means prose."""
    return bool(SQL.match(text)) and not re.match(r"\s*[A-Z][a-z]", text)


def ledger(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(project / "tools/ledger.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def pins(file: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", file.read_text(), re.MULTILINE))


def strings_of(path: Path) -> list[tuple[int, str]]:
    """The string literals of a module, without docstrings."""
    tree = ast.parse(path.read_text())
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]


def test_every_benchmark_can_be_imported(project: Path) -> None:
    names = sorted(f"bench.{path.stem}" for path in (project / "bench").glob("*.py") if path.stem != "__main__")
    program = f"import importlib; [importlib.import_module(name) for name in {names}]"
    result = subprocess.run([sys.executable, "-c", program], cwd=project, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_migrations_form_one_chain_in_the_order_of_their_numbers(project: Path) -> None:
    folder = project / "src" / MIGRATIONS
    found = []
    for file in sorted(folder.glob("m[0-9]*.py")):
        revision, before = re.findall(r'^(?:down_)?revision = (?:"(\w+)"|None)$', file.read_text(), re.MULTILINE)
        assert file.name.startswith(f"{revision}_")
        found.append((revision, before))
    revisions = ["", *(revision for revision, _ in found)]
    assert [before for _, before in found] == revisions[:-1]
