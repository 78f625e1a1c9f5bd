"""The tutorial on adding a site: its commands are run in their order, and print what the page shows."""

import re
from pathlib import Path

from fieldpost.testing.mail import MailServerThread
from support.documented import ID, Terminals, fits, steps_of
from support.ports import free_port

PAGE = "docs/tutorial/add-a-site.md"
FOLDER = "/var/lib/fieldpost"


async def test_the_documented_steps_print_what_the_page_shows(project: Path, tmp_path: Path) -> None:
    page = (project / PAGE).read_text()
    url = f"http://127.0.0.1:{free_port()}"
    terminals = Terminals(tmp_path, {"FIELDPOST_URL": url, "FIELDPOST_FOLDER": f"{tmp_path}/site"})
    agent = f"fieldpost site --folder {FOLDER}"
    assert f"\n    {agent}\n" in page
    (invitation,) = re.findall(r"^ {4}(fieldpost site join .+)$", page, re.MULTILINE)
    joining, ids = "", dict[str, str]()

    def here(command: str) -> str:
        for shown, got in ids.items():
            command = command.replace(shown, got)
        return command.replace("https://fieldpost.example.org", url).replace(FOLDER, f"{tmp_path}/site")

    with MailServerThread() as server:
        serving = terminals.running(f"fieldpost central --port {url.rpartition(':')[2]}", "Central serves at")
        async with serving:
            await terminals.run(
                f"fieldpost channels add mail --set host=127.0.0.1 --set port={server.port} --set tls=none"
                " --set from_address=fieldpost@plant.example --default"
                " && fieldpost lists add operators --target ada@plant.example"
            )
            add, join, export, *steps = steps_of(page)
            printed = await terminals.run(here(add.command))
            (joining,) = re.findall(r"^ +(fieldpost site join .+)$", printed, re.MULTILINE)
            assert fits(f"{invitation}\n", f"{joining.replace(url, 'https://fieldpost.example.org')}\n"), printed
            assert join.command.startswith("fieldpost site join fp_join_…@https://fieldpost.example.org --folder")
            await terminals.run(joining.replace("./north", f"{tmp_path}/site"))
            assert export.command == f"export FIELDPOST_FOLDER={FOLDER}"
            async with terminals.running(here(agent), "agent.started"):
                for step in steps:
                    if "fieldpost send" not in step.command:
                        await terminals.until_shown(step, lambda command: terminals.run(here(command), may_fail=True))
                        continue
                    printed = await terminals.run(here(step.command))
                    assert fits(step.shown, printed), (step, printed)
                    ids |= dict(zip(ID.findall(step.shown), ID.findall(printed), strict=True))
