"""What stands in examples/ runs as it stands there."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.site_folders import make_site


def test_the_site_script_sends_without_an_agent_and_prints_the_id(project: Path, tmp_path: Path) -> None:
    with make_site(tmp_path / "fieldpost-demo/plant-north") as site:
        command = [sys.executable, str(project / "examples/site_script.py")]
        printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
        assert site.notify.status(printed).status == "forwarding"


@pytest.mark.req("ADP-01", "ADP-15")
def test_the_third_party_adapter_passes_the_contract_and_is_found_once_installed(project: Path, tmp_path: Path) -> None:
    example = project / "examples/ntfy_adapter"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(example)]
    ran = subprocess.run(command, cwd=example, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # Laid out as pip lays it out, beside Fieldpost and not into its environment.
    installed = tmp_path / "installed"
    info = installed / "fieldpost_ntfy-0.1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(example / "fieldpost_ntfy.py", installed)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fieldpost-ntfy\nVersion: 0.1.0\n")
    declared = tomllib.loads((example / "pyproject.toml").read_text())["project"]["entry-points"]["fieldpost.adapters"]
    lines = "".join(f"{name} = {value}\n" for name, value in declared.items())
    (info / "entry_points.txt").write_text(f"[fieldpost.adapters]\n{lines}")
    look = "from fieldpost.central.adapters import load; print(sorted(load()))"
    found = subprocess.run(
        [sys.executable, "-c", look],
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'email'" in found.stdout
    assert "'ntfy'" in found.stdout
