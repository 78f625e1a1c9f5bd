"""Where a send or call comes from, said once for a block of code or with each call."""

import json
import threading

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.core.sites.message import Message
from support.plant import Plant

NAMES = ("instance", "script", "execution_id", "parent_execution_id")


def sent(plant: Plant, **given: str) -> dict[str, str | None]:
    """The provenance of a notification that is sent now."""
    message = plant.site._buffer.find(plant.site.notify.to("ops").send("s", "b", **given))
    assert isinstance(message, Message)
    item = json.loads(message.payload)
    return {name: item[name] for name in NAMES if item.get(name) is not None}


def test_every_message_sent_within_a_context_has_its_provenance(plant: Plant) -> None:
    whole = {"instance": "pump-3", "script": "leak.py", "execution_id": "run-7", "parent_execution_id": "run-1"}
    with plant.site.context(**whole):
        assert sent(plant) == whole
        call = plant.record(plant.site.external("erp").call("GET", "/"))
        write = plant.record(plant.site.database("plant").write("count", {"unit": "p", "n": 1}))
    for record in (call, write):
        assert {name: getattr(record, name) for name in NAMES} == whole
    assert sent(plant) == {}


def test_arguments_of_a_call_have_precedence_and_contexts_nest(plant: Plant) -> None:
    with plant.site.context(instance="pump-3", script="a.py"):
        assert sent(plant, script="b.py") == {"instance": "pump-3", "script": "b.py"}
        with plant.site.context(instance="pump-4"):
            assert sent(plant) == {"instance": "pump-4", "script": "a.py"}
        assert sent(plant) == {"instance": "pump-3", "script": "a.py"}


def test_context_ends_with_an_error_too(plant: Plant) -> None:
    with pytest.raises(ZeroDivisionError), plant.site.context(instance="pump-3"):
        raise ZeroDivisionError
    assert sent(plant) == {}


def test_context_applies_to_its_thread_only(plant: Plant) -> None:
    seen = []
    with plant.site.context(instance="pump-3"):
        thread = threading.Thread(target=lambda: seen.append(sent(plant)))
        thread.start()
        thread.join()
    assert seen == [{}]


@pytest.mark.bad_input(6)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["", "a\nb", 5, "x" * 257])
def test_a_bad_text_is_refused_by_name_on_entering(plant: Plant, name: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught, plant.site.context(**{name: value}):  # type: ignore[arg-type]
        pytest.fail("entered")
    assert caught.value.field == name
    assert sent(plant) == {}
