"""A channel's settings to a form and back."""

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.central.operate.channel_settings import ChannelType, type_of
from fieldpost.central.operate.trial import trial_steps
from fieldpost.core.delivery.adapter import AttemptPhase, SettingField
from fieldpost.core.delivery.outcome import Delivered, Held
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import Channel
from fieldpost.front.console import channel_form

FIELDS = (
    SettingField(name="host", doc="", is_required=True),
    SettingField(name="port", doc="", kind="whole"),
    SettingField(name="wait_s", doc="", kind="number"),
    SettingField(name="password", doc=""),
)
PHASES = (AttemptPhase("call", "Call", "look"), AttemptPhase("say", "Say", "ask"))
KIND = ChannelType("pager", frozenset({"password"}), is_described=True, fields=FIELDS, phases=PHASES)
BARE = ChannelType("pager", frozenset({"password"}))
CHANNEL = Channel("c", "pager", {"host": "a", "port": 5, "wait_s": 2.5, "beyond": "kept"}, secrets={"password": "…"})


@pytest.mark.parametrize("kind", [KIND, BARE])
def test_unchanged_form_changes_nothing(kind: ChannelType) -> None:
    given = channel_form.read(kind, channel_form.shown(kind, CHANNEL), CHANNEL)
    assert (given.settings, given.secrets) == ({}, {})


def test_changed_fields_are_set_and_emptied_ones_return_to_their_default() -> None:
    form = {"settings.host": " b ", "settings.port": "", "settings.wait_s": "2.5", "secrets.password": " s "}
    given = channel_form.read(KIND, form, CHANNEL)
    assert given.settings == {"host": "b", "port": None}
    assert given.secrets == {"password": " s "}, "blanks may belong to a secret"
    assert channel_form.read(KIND, {"settings.host": "b"}).settings == {"host": "b"}


def test_invalid_number_reaches_the_adapter_as_typed() -> None:
    given = channel_form.read(KIND, {"settings.port": "many", "settings.wait_s": "1e3"})
    assert given.settings == {"port": "many", "wait_s": 1000.0}


def test_adapter_without_descriptions_gets_plain_lines() -> None:
    form = {"settings": 'host=b\n\nport=6\nname="6"\nis_on=true\n', "clear.password": "true"}
    given = channel_form.read(BARE, form, CHANNEL)
    assert given.settings == {"host": "b", "port": 6, "name": "6", "is_on": True, "wait_s": None, "beyond": None}
    assert given.secrets == {"password": None}
    for wrong in ("host", "=b", "host=a\nhost=b"):
        with pytest.raises(InvalidInput, match="line"):
            channel_form.read(BARE, {"settings": wrong})
    error = InvalidInput("settings.invalid", "port must be a number", field="settings.port")
    assert channel_form.errors_of(error, BARE) == {"settings": "Port must be a number."}
    assert channel_form.errors_of(error, KIND) == {"settings.port": "Port must be a number."}


def test_values_returned_to_a_form_contain_no_secret() -> None:
    assert channel_form.kept({"settings.host": "a", "secrets.password": "s"}) == {"settings.host": "a"}


def test_test_result_lists_the_phases_up_to_the_failed_one() -> None:
    def told(outcome: Delivered | Held) -> list[tuple[str, str, str | None]]:
        steps = trial_steps(KIND.phases, CHANNEL.settings, outcome)
        return [(step.title, step.state, step.advice) for step in steps]

    assert told(Delivered()) == [("Call", "passed", None), ("Say", "passed", None)]
    assert told(Held("no", phase="say")) == [("Call", "passed", None), ("Say", "failed", "Ask")]
    assert told(Held("no", phase="call")) == [("Call", "failed", "Look"), ("Say", "not reached", None)]
    assert told(Held("no", phase="settings")) == [], "none that is known"


def test_test_result_of_an_email_channel_lists_only_its_own_phases() -> None:
    adapter = EmailAdapter()
    kind = type_of(adapter)
    plain = Channel("c", "email", {"tls": "none", "auth": "none"})
    full = Channel("c", "email", {"tls": "starttls", "auth": "oauth2"})
    told = [[s.title for s in trial_steps(kind.phases, c.settings, Delivered())] for c in (plain, full)]
    assert told == [
        ["Connect", "Greeting", "Sender", "Recipient", "Message", "Confirmation"],
        ["Token", "Connect", "Greeting", "TLS", "Login", "Sender", "Recipient", "Message", "Confirmation"],
    ]
