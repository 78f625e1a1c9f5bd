"""Chats, SMS and ZGW in the sample world: a paused chat, a queue behind a rate, a kanaal with its abonnement."""

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.central.store.events import subscriptions
from fieldpost.core.delivery.outcome import Pause, paused
from fieldpost.core.events.filter import zgw_entry
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.times import to_text
from fieldpost.core.zgw.abonnement import KanaalFields
from support.centre import ScriptedAdapter
from support.front import ADMIN

if TYPE_CHECKING:
    from support.world import World

BOT = "8123456789:AAGm9y0eXample0eXample0eXample0eXamp"
HOOK = "https://93.184.216.34/services/T0/B0/xample"
TOO_MANY = "Telegram: 429 Too Many Requests: retry after 240"
CHANNELS: tuple[tuple[str, str, dict[str, object], dict[str, object], str | None], ...] = (
    ("chat", "telegram", {"url": "https://93.184.216.34"}, {"token": BOT}, None),
    ("rooms", "slack", {}, {}, None),
    ("gsm-router", "sms", {"dialect": "http", "url": "https://93.184.216.34/send"}, {}, "10/1m"),
)


async def add_chats(world: "World") -> None:
    """Channels that a provider limits, with lists; one list of lists reaches a person by all of them."""
    operate = world.front.operate
    for name, type_, settings, secrets, rate in CHANNELS:
        await operate.channels.add(ADMIN, name, type_, settings, secrets, is_default=True, rate=rate)
        world.front.centre.adapters[type_] = ScriptedAdapter(type_)
    lists = (
        ListSpec(name="duty-chat", type="telegram", targets=("-1001234567890", "@plant_duty")),
        ListSpec(name="duty-room", type="slack", targets=("#duty",), secrets={"#duty": HOOK}, rate="1/1s"),
        ListSpec(name="duty-sms", type="sms", targets=("+31612345678",), severity="critical"),
        ListSpec(name="duty", type="lists", targets=("ops", "duty-chat", "duty-room", "duty-sms")),
    )
    for spec in lists:
        await operate.lists.add(ADMIN, spec)


async def flood_chats(world: "World") -> None:
    """More than the providers take: Telegram asked to wait, and SMS wait for their turn."""
    centre = world.front.centre
    chat = centre.adapters["telegram"]
    assert isinstance(chat, ScriptedAdapter)
    chat.answer("duty-chat", paused(Pause(timedelta(minutes=4), TOO_MANY)))
    world.notable["duty"] = await world.say("duty", "Sluice 2: gate does not close", "Position 14 %, set to 0 %.")
    await centre.deliver()
    for number in range(9):
        for name in ("duty-chat", "duty-sms"):
            await world.say(name, f"Sluice {number}: level alarm", "3.92 m, limit 3.80 m.", severity="error")
    await centre.deliver()


async def add_abonnement(world: "World") -> None:
    """A kanaal of one ZGW client, and the abonnement of another, whose token expires soon."""
    operate, store = world.front.operate, world.front.centre.store
    publisher = await operate.zgw_clients.get("open-zaak")
    await operate.kanalen.add(
        publisher, KanaalFields("zaken", "https://93.184.216.34/docs/zaken", ("bronorganisatie", "zaaktype"))
    )
    abonnement_id = "6a1c2b8e-4f0d-4b7a-9c55-0d6f2c1e7a10"
    made = Subscription(
        subscription_id=world.make_id(),
        name=f"abonnement {abonnement_id}",
        owner="besluitenregister",
        filter=(zgw_entry("zaken", {"bronorganisatie": "517439943"}),),
        settings={"url": "https://93.184.216.34/callbacks", "format": "raw", "auth": "header"},
        abonnement_id=abonnement_id,
    )
    expires = to_text(world.clock.now() + timedelta(days=9))
    made = replace(made, settings={**made.settings, "auth_header": "Authorization", "auth_expires_at": expires})
    await store.write(subscriptions.add, made, world.clock.now())
    world.places["abonnement"] = made.subscription_id
