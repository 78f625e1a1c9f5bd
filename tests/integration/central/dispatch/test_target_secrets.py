"""Targets that are labels with a secret: read at each attempt, in no text, and a missing one parks naming the label."""

import json

import pytest
from structlog.testing import capture_logs

from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.central.operate.operate import Operate
from fieldpost.central.watch.watch import Watch
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Delivered, Outcome, PermanentFailure
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Status, TargetStatus
from fieldpost.core.secret import Secret
from fieldpost.front.files.lists import from_csv, from_json, to_csv, to_json
from fieldpost.testing import ManualClock
from support.centre import Centre, ScriptedAdapter
from support.front import ADMIN

CANARY, OTHER = "https://hooks.example/canary-4711", "https://hooks.example/canary-4712"


class HookAdapter(ScriptedAdapter):
    """A type whose targets are labels with a hook URL."""

    target_secret_name = "hook URL"
    has_own_urls = True

    def check_target_secret(self, secret: Secret) -> Secret:
        if not secret.reveal().startswith("https://"):
            raise InvalidInput("hook.url", "the hook URL must be https://")
        return secret


@pytest.fixture
async def hooked(centre: Centre) -> Centre:
    centre.adapter = HookAdapter("chat")
    centre.adapters["chat"] = centre.adapter
    await centre.add_channel("rooms", type="chat")
    return centre


def operate_of(centre: Centre) -> Operate:
    return Operate.over(centre.store, centre.adapters, centre.clock, centre.keyring)


@pytest.mark.req("CHN-04", "DEC-62")
async def test_a_secret_is_read_at_each_attempt_and_appears_nowhere(hooked: Centre, clock: ManualClock) -> None:
    operate = operate_of(hooked)
    added = await operate.lists.add(
        ADMIN, ListSpec(name="ops", type="chat", targets=["room"], secrets={"room": CANARY})
    )
    seen: list[str] = []

    async def refuse(envelope: Envelope) -> Outcome:
        seen.append(envelope.target_secrets["room"].reveal())
        return PermanentFailure(f"404 from {seen[-1]}", reply=seen[-1])

    hooked.adapter.answer("ops", refuse)
    with capture_logs() as logs:
        sent = await hooked.send("ops")
        await hooked.deliver()
        n = await hooked.get(sent)
        assert (n.status, n.last_error) == (Status.PARKED, "room: 404 from ***")
        changed = await operate.lists.change(ADMIN, "ops", added.version, secrets={"room": OTHER})
        assert await hooked.retry(sent)
        hooked.adapter.answer("ops", Delivered())
        await hooked.deliver()
    assert (await hooked.get(sent)).status is Status.DELIVERED, "a changed secret fixes what was parked"
    assert hooked.adapter.envelopes[-1].target_secrets["room"].reveal() == OTHER
    exported = await operate.list_files.export(ADMIN)
    detail = await Watch.over(hooked.store, clock).notifications.detail(sent)
    dump = [await hooked.rows(f"select * from {table}") for table in ("targets", "attempts", "audit", "list_targets")]
    texts = [logs, changed, exported, to_csv(exported), to_json(exported), detail, dump, hooked.adapter.envelopes]
    assert not any("canary" in repr(text) for text in texts)


@pytest.mark.req("CHN-04")
async def test_a_label_without_a_secret_parks_naming_it_and_the_others_are_served(hooked: Centre) -> None:
    spec = ListSpec(name="ops", type="chat", targets=["bare", "room"], secrets={"room": CANARY})
    await operate_of(hooked).lists.add(ADMIN, spec)
    sent = await hooked.send("ops")
    await hooked.deliver()
    n = await hooked.get(sent)
    assert (n.status, n.last_error) == (Status.PARKED, "bare: the target 'bare' has no hook URL")
    assert [t.status for t in n.targets] == [TargetStatus.FAILED, TargetStatus.DELIVERED]
    assert [e.targets for e in hooked.adapter.envelopes] == [("room",)]


@pytest.mark.req("CHN-04")
@pytest.mark.parametrize("form", ["csv", "json"])
async def test_an_import_sets_secrets_and_keeps_those_it_does_not_name(hooked: Centre, form: str) -> None:
    operate = operate_of(hooked)
    first = f"list,type,target,secret\nops,chat,a,{CANARY}\nops,chat,b,{OTHER}\n"
    second = f"list,type,target,secret\nops,chat,a,{OTHER}\nops,chat,b,\n"
    entry = {"name": "ops", "type": "chat", "targets": ["a", "b"]}
    if form == "json":
        specs = [
            from_json(json.dumps({"lists": [entry | {"secrets": secrets}]}))
            for secrets in ({"a": CANARY, "b": OTHER}, {"a": OTHER})
        ]
    else:
        specs = [from_csv(first), from_csv(second)]
    for given, properties in zip((*specs, specs[1]), ((), ("secrets",), ()), strict=True):
        [change] = await operate.list_files.import_all(ADMIN, given)
        assert change.properties == properties, "an equal secret is no change"
    found = await operate.lists.get("ops")
    opened = hooked.keyring.open_targets("ops", found.secrets)
    assert {label: secret.reveal() for label, secret in opened.items()} == {"a": OTHER, "b": OTHER}


@pytest.mark.req("CHN-04")
@pytest.mark.parametrize(
    ("type_", "secrets", "field"),
    [
        ("chat", {"nobody": CANARY}, "secrets.nobody"),
        ("chat", {"room": "http://canary"}, "secrets.room"),
        ("chat", {"room": "canary\x00"}, "secrets.room"),
        ("email", {"room": CANARY}, "secrets.room"),
    ],
)
async def test_an_invalid_secret_is_refused_and_not_repeated(
    hooked: Centre, type_: str, secrets: dict[str, str], field: str
) -> None:
    hooked.adapters["email"] = ScriptedAdapter()
    with pytest.raises(InvalidInput) as refused:
        await operate_of(hooked).lists.add(ADMIN, ListSpec(name="ops", type=type_, targets=["room"], secrets=secrets))
    assert refused.value.field == field
    assert "canary" not in str(refused.value)


@pytest.mark.req("CHN-04")
async def test_a_rotation_seals_target_secrets_again_and_a_test_uses_them(hooked: Centre) -> None:
    operate = operate_of(hooked)
    await operate.lists.add(ADMIN, ListSpec(name="ops", type="chat", targets=["room"], secrets={"room": CANARY}))
    assert (await operate.secrets.state()).counts == {hooked.keyring.key_ids[0]: 1}
    assert (await operate.secrets.rotate(ADMIN)).problems == ()
    trial = await operate.channels.test(ADMIN, "rooms", "room")
    assert trial.outcome.word == "delivered"
    assert hooked.adapter.envelopes[-1].target_secrets["room"].reveal() == CANARY
    with pytest.raises(InvalidInput, match="no list of the channel has a target 'other'"):
        await operate.channels.test(ADMIN, "rooms", "other")
