"""The first tutorial: its commands and programs are run in their order, and print what the page shows."""

import re
from contextlib import AsyncExitStack
from pathlib import Path

from support.documented import ID, Step, Terminals, fits, steps_of
from support.ports import free_port

PAGE = "docs/tutorial/first-notification.md"
QUICK = {
    "FIELDPOST_DISPATCH__INTERVAL_S": "0.5",
    "FIELDPOST_DISPATCH__BREAKER_HOLD_S": "3",
    "FIELDPOST_DISPATCH__BREAKER_FAILURES_MAX": "1000",
}


async def test_the_documented_steps_print_what_the_page_shows(project: Path, tmp_path: Path) -> None:
    page = (project / PAGE).read_text()
    port, mail_port = free_port(), free_port()
    terminals = Terminals(tmp_path, {"FIELDPOST_URL": f"http://127.0.0.1:{port}", **QUICK})
    ids: dict[str, str] = {}
    """The ids that the page shows, and those that this run got."""

    def here(text: str) -> str:
        for shown, got in ids.items():
            text = text.replace(shown, got)
        return text.replace("2525", str(mail_port)).replace(":8025", f":{port}")

    async def query(command: str) -> str:
        printed = await terminals.run(here(command), may_fail=True)
        return printed.replace(str(mail_port), "2525").replace(f":{port}", ":8025")

    for name, program in re.findall(r"`(\w+\.py)`[^`]*```python\n(.+?)^```$", page, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(here(program))
    catch, central, *steps = steps_of(page.partition("\n## 3. ")[2])
    assert (catch.command, central.command) == ("python catcher.py", "fieldpost central")
    agent = "fieldpost site --folder pump-station"
    assert f"`{agent}`" in page
    joining = ""
    async with AsyncExitStack() as stack:
        catcher = await stack.enter_async_context(terminals.running(catch.command, "Enter ends it"))
        serving = await stack.enter_async_context(
            terminals.running(f"{central.command} --port {port}", "fieldpost-data/api-token.\n")
        )
        started = terminals.printed["central"].replace(f":{port}", ":8025")
        assert fits(central.shown, "".join(started.partition("fieldpost-data/api-token.\n")[:2])), started

        for step in steps:
            if step.shown.startswith("delivered"):
                await stack.enter_async_context(terminals.running(agent, "agent.started"))
                await terminals.until_shown(step, query)
                continue
            if step.command.startswith("python alarm"):
                assert catcher.stdin is not None
                catcher.stdin.write(b"\n")
                await catcher.wait()
            if "explain" in step.command:
                await terminals.until_shown(step, query)
                continue
            if "site join" in step.command:
                step.command = joining
            printed = await query(step.command)
            assert fits(step.shown, printed), (step, printed)
            for shown, got in zip(ID.findall(step.shown), ID.findall(printed), strict=False):
                ids.setdefault(shown, got)
            if "sites add" in step.command:
                joining = re.findall(r"^ +(fieldpost site join .+)$", printed, re.MULTILINE)[0]

        [mail] = re.findall(r"^ {4}to ada@.+?…$", page, re.MULTILINE | re.DOTALL)
        received = terminals.printed["catcher.py"].partition("\n")[2].replace("\r\n", "\n")
        assert fits(re.sub(r"^ {4}", "", mail, flags=re.MULTILINE), received), received

        serving.terminate()
        await serving.wait()
        missed = await query(
            'fieldpost send --folder pump-station --to operators --subject "Pump 4 stopped" "No flow."'
        )
        site = "event='forwarding.failed' code='link.unreachable'"
        await terminals.until(lambda: site in terminals.printed["site"], "the agent's failure")
        await stack.enter_async_context(terminals.running(catch.command, "Enter ends it"))
        await stack.enter_async_context(terminals.running(f"{central.command} --port {port}", "Central serves at"))
        status = f"fieldpost status --folder pump-station {missed.strip()}"
        await terminals.until_shown(Step(status, "delivered, at 2026-11-15T08:55:40Z\n"), query)
        await terminals.until(lambda: "event='forwarding.resumed' failing_since=" in terminals.printed["site"], "more")
        await terminals.until(lambda: terminals.printed["catcher.py"].count("Subject: Pump") == 2, "both mails")
