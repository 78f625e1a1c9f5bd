"""The kept list of mutations: long enough, each named once, and judged by what its tests do."""

import subprocess
import sys
import tomllib
from pathlib import Path

MUTATIONS_MIN = 60


def test_the_list_has_enough_mutations_each_with_its_own_name(project: Path) -> None:
    mutations = tomllib.loads((project / "tools/mutations.toml").read_text())["mutation"]
    assert len(mutations) >= MUTATIONS_MIN
    assert len({one["name"] for one in mutations}) == len(mutations)
    assert all(one["old"] != one["new"] for one in mutations)


def test_every_mutation_fits_the_code(project: Path) -> None:
    """After a change of the code, correct its entry: an old text that is gone would be found in `make mutants` only."""
    command = [sys.executable, str(project / "tools/mutants"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_mutation_names_tests_that_exist(project: Path) -> None:
    mutations = tomllib.loads((project / "tools/mutations.toml").read_text())["mutation"]
    named = {
        word.partition("::")[::2] for one in mutations for word in one["tests"].split() if word.startswith("tests/")
    }
    missing = {
        f"{path}::{test}"
        for path, test in named
        if not (project / path).exists() or f"def {test.partition('[')[0]}" not in (project / path).read_text()
    }
    assert missing == set()


def test_a_killed_mutation_passes_and_a_survivor_fails_the_run(project: Path, tmp_path: Path) -> None:
    """On a project of its own: a rule, one test that notices its loss and one that does not."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/mutants").write_text((project / "tools/mutants").read_text())
    (tmp_path / "src/fieldpost").mkdir(parents=True)
    (tmp_path / "src/fieldpost/__init__.py").write_text("")
    (tmp_path / "src/fieldpost/rule.py").write_text("def is_big(n):\n    return n > 3\n")
    for name in ("docs", "examples", "tests"):
        (tmp_path / name).mkdir()
    for name in ("pyproject.toml", "Makefile", "README.md"):
        (tmp_path / name).write_text("")
    (tmp_path / "tests/test_good.py").write_text(
        "from fieldpost.rule import is_big\ndef test_rule():\n    assert not is_big(3)\n"
    )
    (tmp_path / "tests/test_weak.py").write_text(
        "from fieldpost.rule import is_big\ndef test_rule():\n    assert is_big(9)\n"
    )
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))

    def run(tests: str, *arguments: str, old: str = "n > 3") -> tuple[int, str]:
        (tmp_path / "tools/mutations.toml").write_text(
            f'[[mutation]]\nname = "m"\nfile = "rule.py"\nold = "{old}"\nnew = "n >= 3"\ntests = "{tests}"\n'
        )
        command = [sys.executable, str(tmp_path / "tools/mutants"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    code, output = run("tests/test_good.py")
    assert (code, "1 of 1 mutations killed" in output) == (0, True), output
    code, output = run("tests/test_weak.py", "--no-baseline")
    assert (code, "SURVIVED  m" in output) == (1, True), output
    code, output = run("tests/test_missing.py")
    assert (code, "WITHOUT A MUTATION these fail" in output) == (1, True), output
    code, output = run("tests/test_good.py", "--check", old="n > 4")
    assert (code, "DOES NOT FIT  m" in output) == (1, True), output
    assert (tmp_path / "src/fieldpost/rule.py").read_text() == "def is_big(n):\n    return n > 3\n"
