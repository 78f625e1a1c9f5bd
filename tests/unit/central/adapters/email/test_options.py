"""The domain of Message-IDs: checked where it is set, and found where it is not."""

import pytest

from fieldpost.central.adapters.email.options import EmailOptions
from fieldpost.core.errors import ConfigError


@pytest.mark.parametrize("domain", ["localhost", "a b.example", "ops@plant.example", "plant.example.", "[127.0.0.1]"])
def test_invalid_domain_is_rejected_naming_the_setting(domain: str) -> None:
    with pytest.raises(ConfigError, match=r"^email\.message_id_domain ") as caught:
        EmailOptions(message_id_domain=domain)
    assert caught.value.field == "email.message_id_domain"


@pytest.mark.parametrize(
    ("setting", "host", "chosen"),
    [
        ("Alerts.Example.org", "central.plant.example", "alerts.example.org"),
        ("müller.example", "central.plant.example", "xn--mller-kva.example"),
        ("", "Central.plant.example", "central.plant.example"),
        ("", "central", "010203.fieldpost.internal"),
        ("", "not a host name", "010203.fieldpost.internal"),
    ],
)
def test_first_domain_is_the_setting_else_the_host_else_generated(setting: str, host: str, chosen: str) -> None:
    assert EmailOptions(message_id_domain=setting).first_domain(host, bytes([1, 2, 3])) == chosen
