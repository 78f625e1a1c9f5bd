"""The pages of lists: the table, one list and its form, two who change it at once, import and export."""

from collections.abc import AsyncIterator

import pytest

from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.core.delivery.retry import to_text
from fieldpost.core.errors import NotFound
from fieldpost.testing import ManualClock
from support.front import ADMIN, Front, open_front
from support.visitor import visiting

FILE = "list,target\r\nops,ann@example.org\r\nops,cem@example.org\r\nnight,lee@example.org\r\n"


@pytest.fixture
async def quick(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    """On one database, for what no database answers otherwise than another."""
    async with open_front(sqlite_url, clock) as opened:
        yield opened


async def add_ops(front: Front) -> None:
    await front.operate.lists.add(ADMIN, ListSpec(name="ops", targets=["ann@example.org", "bob@example.org"]))


async def test_list_is_added_changed_and_removed_without_scripts(quick: Front) -> None:
    async with visiting(quick, "admin") as visitor:
        assert "No lists yet" in await visitor.look("/lists")
        await visitor.look("/new/list")
        await visitor.send("/lists", name="a/b", type="email", targets="ann@example.org\r\n\r\n bob@example.org \r\n")
        assert "List added" in visitor.text
        assert str(visitor.page.url).endswith("/lists/a/b?done=added")
        assert (await quick.operate.lists.get("a/b")).targets == ("ann@example.org", "bob@example.org")
        more = {"retry": "fixed:60s:3", "park_uncertain": "true", "allowed_sites": "plant-7\r\nplant-8"}
        await visitor.send("/lists/a/b/change", targets="ann@example.org", **more)
        changed = await quick.operate.lists.get("a/b")
        assert (changed.targets, changed.park_uncertain) == (("ann@example.org",), True)
        assert changed.retry is not None
        assert to_text(changed.retry) == "fixed:60s:3"
        assert changed.allowed_sites == ("plant-7", "plant-8")
        await visitor.send("/lists/a/b/change", targets="ann@example.org", retry="", allowed_sites="")
        emptied = await quick.operate.lists.get("a/b")
        assert (emptied.retry, emptied.park_uncertain, emptied.allowed_sites) == (None, False, None)
        assert "no channel" in await visitor.look("/lists"), "what comes for it would park"
        await visitor.look("/lists/a/b?confirm=remove")
        await visitor.send("/lists/a/b/remove")
        assert "List removed" in visitor.text
    with pytest.raises(NotFound):
        await quick.operate.lists.get("a/b")


async def test_errors_are_shown_at_their_field_or_line_and_the_input_is_kept(quick: Front) -> None:
    await add_ops(quick)
    async with visiting(quick, "admin") as visitor:
        await visitor.look("/lists/ops")
        targets = "ann@example.org\r\n\r\nno address <here>\r\n"
        answer = await visitor.send("/lists/ops/change", targets=targets, retry="sometimes")
        assert answer.status_code == 422
        assert "Line 3 (no address <here>)" in visitor.text
        assert "no address &lt;here&gt;" in answer.text.split("<textarea")[1]
        answer = await visitor.send("/lists/ops/change", targets="ann@example.org", retry="sometimes")
        assert (answer.status_code, 'value="sometimes"' in answer.text) == (422, True)
        answer = await visitor.send("/lists/ops/change", targets=" ")
        assert "A list needs at least one target" in visitor.text
        await visitor.look("/new/list")
        answer = await visitor.send("/lists", name="ops", type="email", targets="x@example.org")
        assert (answer.status_code, "List 'ops' already exists" in visitor.text) == (409, True)
        answer = await visitor.send("/lists", name="a\nb", type="email", targets="x@example.org")
        assert (answer.status_code, 'aria-describedby="e-name"' in answer.text) == (422, True)
    assert len((await quick.operate.lists.get("ops")).targets) == 2


async def test_second_of_two_concurrent_list_forms_keeps_its_input_and_shows_its_effect_now(quick: Front) -> None:
    await add_ops(quick)
    async with visiting(quick, "admin") as first, visiting(quick, "admin") as second:
        await first.look("/lists/ops")
        await second.look("/lists/ops")
        await first.send("/lists/ops/change", targets="ann@example.org\r\nnew@example.org")
        answer = await second.send("/lists/ops/change", targets="ann@example.org\r\nbob@example.org\r\nme@example.org")
        assert answer.status_code == 409
        for words in ("add bob@example.org", "add me@example.org", "remove new@example.org"):
            assert words in second.text
        assert "me@example.org" in answer.text.split("<textarea")[1]
        assert (await quick.operate.lists.get("ops")).targets == ("ann@example.org", "new@example.org")
        await second.send("/lists/ops/change", targets="me@example.org")
        assert "List saved" in second.text, "knowing what it does, he does it"


async def test_waiting_notifications_of_a_list_are_shown_before_its_removal(front: Front) -> None:
    await front.centre.add_channel()
    await front.centre.add_list()
    await front.centre.send_many(3)
    async with visiting(front, "admin") as visitor:
        assert "3 waiting" in await visitor.look("/lists/ops")
        asked = await visitor.look("/lists/ops?confirm=remove")
        assert "3 waiting: they are parked at the next attempt" in asked
        await visitor.send("/lists/ops/remove")
    async with visiting(front, "viewer") as visitor:
        await front.centre.add_list()
        assert "You need the role admin to change" in await visitor.look("/lists")
        assert "Operators and administrators see the addresses" in await visitor.look("/lists/ops")
        assert "textarea" not in visitor.page.text
        assert "This requires the role admin" in await visitor.look("/lists/ops?confirm=remove")
        for path in ("/new/list", "/import/lists", "/export/lists"):
            assert (await visitor.client.get(path)).status_code == 403


async def test_import_applies_exactly_the_previewed_changes(front: Front) -> None:
    await add_ops(front)
    async with visiting(front, "admin") as visitor:
        await visitor.look("/import/lists")
        await visitor.send("/import/lists/preview", text=FILE)
        for words in ("ops", "changed", "added cem@example.org", "removed bob@example.org", "night", "new"):
            assert words in visitor.text
        assert "0 lists in the file unchanged; 0 other lists not in the file" in visitor.text
        assert len(await front.operate.lists.all()) == 1, "a preview does nothing"
        answer = await visitor.send("/import/lists", text=FILE)
        assert answer.headers["location"] == "/lists?done=imported"
    assert {found.name: found.targets for found in await front.operate.lists.all()} == {
        "night": ("lee@example.org",),
        "ops": ("ann@example.org", "cem@example.org"),
    }


async def test_outdated_preview_is_not_imported(quick: Front) -> None:
    await add_ops(quick)
    async with visiting(quick, "admin") as visitor:
        await visitor.look("/import/lists")
        await visitor.send("/import/lists/preview", text=FILE)
        before = visitor.page
        await quick.operate.lists.change(ADMIN, "ops", 1, targets=["zoe@example.org"])
        answer = await visitor.send("/import/lists", text=FILE)
        assert (answer.status_code, "The lists have changed since the preview" in visitor.text) == (409, True)
        assert "removed zoe@example.org" in visitor.text, "the new preview"
        assert (await quick.operate.lists.get("ops")).targets == ("zoe@example.org",)
        visitor.page = before
        answer = await visitor.send("/import/lists", text=FILE, plan="")
        assert answer.status_code == 409


async def test_all_errors_of_a_file_are_shown_with_their_lines(quick: Front) -> None:
    wrong = "list,target,retry\nops,nobody,\nops,ann@example.org,\nnight,x y@example.org,\nday,d@example.org,often\n"
    async with visiting(quick, "admin") as visitor:
        await visitor.look("/import/lists")
        answer = await visitor.send("/import/lists/preview", text=wrong)
        assert answer.status_code == 422
        for place in ("line 2.target: ", "line 4.target: ", "retry: "):
            assert place in visitor.text
        assert "Import these changes" not in visitor.text
        assert "x y@example.org" in answer.text.split("<textarea")[-1], "what was pasted stays"
        for text in ("", "list;who\nops;ann", '{"lists": [{"name": "ops"}]}', '{"lists": [], "lists": []}'):
            answer = await visitor.send("/import/lists/preview", text=text)
            assert (answer.status_code, "Nothing was imported" in visitor.text) == (422, True)
        good = '{"lists": [{"name": "ops", "targets": ["ann@example.org"]}]}'
        assert (await visitor.send("/import/lists/preview", text=good)).status_code == 200
    assert await quick.operate.lists.all() == []


async def test_exported_file_of_all_lists_can_be_imported(quick: Front) -> None:
    await add_ops(quick)
    async with visiting(quick, "admin") as visitor:
        for format_, kind in (("csv", "text/csv"), ("json", "application/json")):
            file = await visitor.client.get("/export/lists", params={"format": format_})
            assert file.headers["content-type"].startswith(kind)
            assert file.headers["content-disposition"] == f'attachment; filename="lists.{format_}"'
            await visitor.look("/import/lists")
            await visitor.send("/import/lists/preview", text=file.text)
            assert "No changes" in visitor.text
        assert (await visitor.client.get("/export/lists?format=pdf")).status_code == 422
    acts = await quick.centre.rows("select request_summary from audit where request_summary = 'list.export'")
    assert len(acts) == 2
