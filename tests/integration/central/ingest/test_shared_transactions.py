"""Submits that wait at the same time share a transaction, and none can fail another."""

import asyncio
from typing import Any

import pytest

from fieldpost.central.ingest.submit import Ingest
from fieldpost.core.audit import AuditStatus
from fieldpost.core.errors import Unavailable
from fieldpost.link.messages import Ack, Item, Submit
from support.centre import Centre


class NotedStore:
    """The centre's store, with a note of each insert (by the number of items) and each confirmation."""

    def __init__(self, centre: Centre) -> None:
        self._store = centre.store
        self.calls: list[object] = []

    async def write_one(self, function: Any, arrived: Any, **more: Any) -> Any:
        self.calls.append(len(arrived))
        return await self._store.write_one(function, arrived, **more)

    async def confirm(self, *given: Any) -> Any:
        self.calls.append("confirm")
        return await self._store.confirm(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def submit_all(
    centre: Centre, store: NotedStore, submits: dict[str, tuple[Item, ...]]
) -> dict[str, Ack | BaseException]:
    """The answers by site to submits that arrive together."""
    ingest = Ingest(store, centre.clock)
    answers = await asyncio.gather(
        *(ingest.submit(site, Submit(1, items)) for site, items in submits.items()), return_exceptions=True
    )
    return dict(zip(submits, answers, strict=True))


def verdicts(answer: Ack | BaseException) -> list[str]:
    assert isinstance(answer, Ack), answer
    return [result.verdict for result in answer.results]


@pytest.mark.req("ING-03", "ING-09")
@pytest.mark.dec("DEC-26")
async def test_submits_of_waiting_sites_are_stored_in_one_transaction(centre: Centre) -> None:
    store = NotedStore(centre)
    submits = {f"plant-{number}": (centre.item(), centre.item()) for number in range(8)}
    answers = await submit_all(centre, store, submits)
    assert store.calls == [16]
    for site, answer in answers.items():
        assert verdicts(answer) == ["accepted", "accepted"]
        for item in submits[site]:
            assert (await centre.get(item.notification_id)).provenance.site == site


@pytest.mark.req("ING-05")
async def test_a_batch_that_cannot_be_stored_fails_alone(centre: Centre) -> None:
    await centre.execute(*refuse_list(centre, "poison"))
    store = NotedStore(centre)
    submits = {name: (centre.item(),) for name in ("first", "before", "after")}
    submits["bad"] = (centre.item(), centre.item("poison"))
    submits["last"] = (centre.item(),)
    answers = await submit_all(centre, store, submits)
    assert store.calls == [6, 1, 1, 1, 2, 1]
    bad = answers.pop("bad")
    assert isinstance(bad, Exception)
    assert not isinstance(bad, Unavailable)
    assert [verdicts(answer) for answer in answers.values()] == [["accepted"]] * 4
    stored = await centre.rows("select notification_id from notifications")
    assert {str(row[0]) for row in stored} == {i.notification_id for name in answers for i in submits[name]}


@pytest.mark.req("ING-04", "ING-06")
async def test_a_duplicate_in_a_shared_transaction_is_acked_after_a_confirmation(centre: Centre) -> None:
    known = centre.item()
    await centre.ingest.submit("plant-7", Submit(1, (known,)))
    store = NotedStore(centre)
    submits = {"first": (centre.item(),), "plant-7": (known,), "other": (centre.item(),)}
    answers = await submit_all(centre, store, submits)
    assert store.calls == [3, "confirm"]
    assert [verdicts(answer) for answer in answers.values()] == [["accepted"], ["duplicate"], ["accepted"]]


@pytest.mark.dec("DEC-12")
async def test_one_id_from_two_sites_in_one_transaction_belongs_to_the_first(centre: Centre) -> None:
    item = centre.item()
    submits = {"first": (centre.item(),), "owner": (item,), "other": (item, centre.item())}
    answers = await submit_all(centre, NotedStore(centre), submits)
    assert [verdicts(answer) for answer in answers.values()] == [["accepted"], ["accepted"], ["rejected", "accepted"]]
    assert (await centre.get(item.notification_id)).provenance.site == "owner"
    entries = await centre.audit(item.notification_id)
    assert [entry.source_site_id for entry in entries if entry.status is AuditStatus.FAILED] == ["other"]


def refuse_list(centre: Centre, name: str) -> list[str]:
    """The statements of a trigger that refuses notifications for one list."""
    if not centre.is_postgresql:
        refusal = f"when new.list_name = '{name}' begin select raise(abort, 'planted'); end"
        return [f"create trigger planted before insert on notifications {refusal}"]
    refusal = f"if new.list_name = '{name}' then raise exception 'planted'; end if"
    return [
        f"create function planted() returns trigger language plpgsql as $$ begin {refusal}; return new; end $$",
        "create trigger planted before insert on notifications for each row execute function planted()",
    ]
