"""A measurement of time says whether it had the machine to itself."""

import threading
import time

import pytest

from core.engine import measuring
from core.engine.measuring import alone


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(measuring, "WAIT_S", 0.05)


def test_one_measurement_at_a_time_holds_the_lock():
    with alone() as first, alone() as second:
        pass
    assert first.locked and not second.locked
    assert second.contended


def test_a_measurement_waits_for_the_one_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measuring, "WAIT_S", 30)
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        with alone():
            begun.set()
            end.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    begun.wait(30)
    threading.Timer(0.1, end.set).start()
    with alone() as found:
        assert end.is_set()
    holder.join()
    assert found.locked


def test_time_that_others_were_given_is_seen():
    """A region that mostly waits was not given a core of its own."""
    with alone() as found:
        time.sleep(0.05)
    assert found.cpu_share < 0.5 and found.contended


def test_a_lock_that_cannot_be_made_is_no_error(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measuring, "LOCK", tmp_path / "missing" / "lock")
    with alone() as found:
        pass
    assert not found.locked and found.contended
