"""What one site may take: the buckets' arithmetic, and who is put off for how long."""

import pytest

from fieldpost.core.errors import ConfigError
from fieldpost.front.allowance import Allowances, Bucket, TooMuch
from fieldpost.front.options import FrontOptions
from fieldpost.testing import ManualClock

OPTIONS = FrontOptions(connections_per_site=2, items_per_s=10, bytes_per_s=1000, burst_s=5)


def test_bucket_in_debt_returns_the_time_until_it_is_paid() -> None:
    bucket = Bucket(rate=10, burst=50, level=50, at=0)
    bucket.charge(50)
    assert bucket.debt_s(0) == 0, "what is just used up is no debt"
    bucket.charge(30)
    assert bucket.debt_s(0) == pytest.approx(3)
    assert bucket.debt_s(2) == pytest.approx(1)
    assert bucket.debt_s(3) == 0


def test_a_bucket_keeps_no_more_than_its_burst_and_time_never_runs_back() -> None:
    bucket = Bucket(rate=10, burst=50, level=50, at=100)
    assert bucket.debt_s(1_000_000) == 0
    bucket.charge(60)
    assert bucket.debt_s(0) == pytest.approx(1)


def test_a_site_in_debt_is_put_off_until_it_is_paid_and_others_are_not() -> None:
    clock = ManualClock()
    allowances = Allowances(OPTIONS, clock)
    allowances.check("plant-7")
    allowances.charge("plant-7", items=500)
    with pytest.raises(TooMuch) as caught:
        allowances.check("plant-7")
    assert (caught.value.code, caught.value.wait_s) == ("link.quota", pytest.approx(45))
    allowances.check("plant-8")
    clock.advance(45)
    allowances.check("plant-7")


def test_items_and_bytes_are_counted_apart_and_the_longer_wait_holds() -> None:
    allowances = Allowances(OPTIONS, ManualClock())
    allowances.charge("plant-7", items=60, bytes=9_000)
    with pytest.raises(TooMuch) as caught:
        allowances.check("plant-7")
    assert caught.value.wait_s == pytest.approx(4)


def test_connections_are_counted_until_they_end_in_any_way() -> None:
    allowances = Allowances(OPTIONS, ManualClock())
    with allowances.connection("plant-7"):
        with pytest.raises(RuntimeError), allowances.connection("plant-7"):
            raise RuntimeError
        with allowances.connection("plant-7"), allowances.connection("plant-8"):
            with pytest.raises(TooMuch) as caught, allowances.connection("plant-7"):
                pytest.fail("there is no third")
            assert caught.value.code == "link.connections"
        with allowances.connection("plant-7"):
            pass


@pytest.mark.parametrize("name", FrontOptions.__dataclass_fields__)
def test_every_limit_must_be_above_zero(name: str) -> None:
    for value in (0, -1, float("nan")):
        with pytest.raises(ConfigError) as caught:
            FrontOptions(**{name: value})
        assert caught.value.field == f"front.{name}"
