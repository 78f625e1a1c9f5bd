"""The import contracts hold, and planted violations fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fieldpost.cli.main import CENTRAL_PACKAGES

WRONG_IMPORTS = [
    pytest.param("site/__init__.py", "import fieldpost.central", id="site-uses-central"),
    pytest.param("core/__init__.py", "import asyncio", id="core-does-io"),
    pytest.param("core/__init__.py", "import fieldpost.link", id="core-imports-link"),
    pytest.param("central/store/__init__.py", "import fieldpost.central.adapters", id="store-knows-adapters"),
    pytest.param("central/watch/__init__.py", "import fieldpost.central.operate", id="watch-knows-operate"),
    pytest.param("central/commands/__init__.py", "import fieldpost.central.ingest", id="commands-know-ingest"),
    pytest.param("front/__init__.py", "import fieldpost.central.store", id="front-has-sql"),
    pytest.param("site/buffer/__init__.py", "import fieldpost.site.forwarding", id="buffer-knows-forwarding"),
    pytest.param("site/config/__init__.py", "import fieldpost.site.carriers", id="config-knows-carriers"),
    pytest.param("central/store/engine/__init__.py", "import fieldpost.central.store.schema", id="engine-knows-schema"),
    pytest.param("central/store/sites/__init__.py", "import fieldpost.central.store.accounts", id="sites-know-users"),
    pytest.param("central/access/__init__.py", "import fieldpost.central.operate", id="access-knows-operate"),
    pytest.param("front/api/__init__.py", "import fieldpost.front.console", id="api-knows-console"),
    pytest.param("front/link/__init__.py", "import fieldpost.front.api", id="link-knows-api"),
    pytest.param("cli/local/__init__.py", "import fieldpost.cli.api", id="local-commands-know-the-api"),
    pytest.param("front/zgw/__init__.py", "import fieldpost.front.console", id="zgw-knows-console"),
    pytest.param("outbox/__init__.py", "import fieldpost.central", id="outbox-uses-central"),
    pytest.param("site/pair/__init__.py", "import fieldpost.site.forwarding", id="pair-knows-forwarding"),
    pytest.param("central/secrets/__init__.py", "import fieldpost.central.operate", id="secrets-know-operate"),
    pytest.param(
        "central/adapters/teams/classify.py", "import fieldpost.central.adapters.slack.classify", id="adapters-mix"
    ),
    pytest.param("stray.py", '"""A new top-level module."""', id="undeclared-package"),
    pytest.param("central/stray.py", '"""A new module of central."""', id="undeclared-central-package"),
]


def test_the_import_contracts_hold(project: Path) -> None:
    result = lint_imports(project)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.req("CFG-13")
@pytest.mark.parametrize(("module", "line"), WRONG_IMPORTS)
def test_a_wrong_import_breaks_the_contracts(project: Path, tmp_path: Path, module: str, line: str) -> None:
    shutil.copy(project / "pyproject.toml", tmp_path)
    shutil.copytree(project / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "src" / "fieldpost" / module).open("a") as file:
        file.write(f"\n{line}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout


@pytest.mark.parametrize("package", ["fieldpost", "fieldpost.site", "fieldpost.core", "fieldpost.outbox"])
def test_packages_for_applications_load_no_site_or_database_library(package: str) -> None:
    drivers = ["sqlite3", "pysqlite3", "psycopg", "pymysql", "django", "asyncpg"]
    assert loaded(f"import {package}", ["apsw", "aiohttp", "structlog", "typer", *drivers, *CENTRAL_PACKAGES]) == "[]"


def test_adding_an_event_loads_only_the_library_of_its_connection() -> None:
    program = (
        "import sqlite3; from fieldpost.outbox import Outbox; connection = sqlite3.connect(':memory:');"
        " Outbox.create_tables(connection); Outbox.add(connection, 'SERVICE_DOWN', {})"
    )
    others = ["psycopg", "pymysql", "django", "aiohttp", "msgspec", "structlog"]
    assert loaded(program, [*others, *CENTRAL_PACKAGES]) == "[]"


def test_script_that_only_notifies_loads_no_http_client_and_no_package_of_central() -> None:
    heavy = ["aiohttp", "yarl", "structlog", "rich", "typer", "pydantic", *CENTRAL_PACKAGES]
    assert loaded("from fieldpost import Site", heavy) == "[]"


def test_agent_loads_no_package_of_central() -> None:
    assert loaded("import fieldpost.run.site", ["typer", "pydantic", *CENTRAL_PACKAGES]) == "[]"


def test_command_line_loads_no_package_of_central() -> None:
    program = (
        "from typer.main import get_command; from fieldpost.cli.commands import app; dict(get_command(app).commands)"
    )
    assert loaded(program, ["aiohttp", "apsw", "structlog", *CENTRAL_PACKAGES]) == "[]"


def loaded(program: str, packages: list[str]) -> str:
    """Which of these packages a program loads."""
    program = f"import sys; {program}; print([name for name in {packages} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_a_name_that_fieldpost_does_not_export_is_an_attribute_error() -> None:
    import fieldpost

    with pytest.raises(AttributeError, match="no attribute 'Sites'"):
        _ = fieldpost.Sites


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    # The folder's own src comes before the installed package, so that a copy is judged and not the original.
    command = [sys.executable, "-c", _LINT, str(folder / "src"), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


_LINT = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from importlinter.cli import lint_imports_command
lint_imports_command()
"""
