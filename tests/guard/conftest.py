"""What the tests of a running guard share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from otel_specdecode.testing.capture import Telemetry, capture

if TYPE_CHECKING:
    from tests.guard.mlx_pair import Pair
    from tests.guard.pair import Models


@pytest.fixture(scope="session")
def models() -> Models:
    """One pair for all tests."""
    from tests.guard.pair import Models

    return Models()


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Another one, with drafts that are bad and turn bad."""
    from tests.guard.mlx_pair import Pair

    return Pair(tmp_path_factory.mktemp("dialled"))


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """The engines instrumented into memory."""
    with capture() as captured:
        yield captured


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that looks at the machine and at its files all the time."""
    from otel_specdecode import guarded

    monkeypatch.setattr(guarded, "LOOK_EVERY", 0.02)
