"""What stands in examples/ runs as it stands there."""

import subprocess
import sys
from pathlib import Path

from support.site_folders import make_site


def test_the_site_script_sends_without_an_agent_and_prints_the_id(project: Path, tmp_path: Path) -> None:
    with make_site(tmp_path / "fieldpost-demo/plant-north") as site:
        command = [sys.executable, str(project / "examples/site_script.py")]
        printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
        assert site.notify.status(printed).status == "forwarding"
