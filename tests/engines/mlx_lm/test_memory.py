"""What MLX's allocator holds, as it is observed."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("mlx", reason="needs the [mlx] extra")

import mlx.core as mx

from otel_specdecode.engines.mlx_lm.memory import allocator_memory

pytestmark = pytest.mark.mlx

MIB = 1024**2


def test_arrays_that_live_are_active_and_their_peak_stays() -> None:
    before = allocator_memory()
    array = mx.zeros((8, MIB), dtype=mx.float32)
    mx.eval(array)
    during = allocator_memory()
    del array
    after = allocator_memory()
    assert before is not None
    assert during is not None
    assert after is not None
    assert during.active - before.active >= 32 * MIB
    assert during.active - after.active >= 32 * MIB
    assert after.peak >= during.active


def test_reading_does_not_reset_the_programs_own_peak() -> None:
    mx.reset_peak_memory()
    mx.eval(mx.ones(MIB))
    peak = mx.get_peak_memory()
    assert allocator_memory() is not None
    assert mx.get_peak_memory() == peak


def test_where_mlx_is_not_in_use_there_is_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mlx.core")
    assert allocator_memory() is None
    monkeypatch.setitem(sys.modules, "mlx.core", object())  # type: ignore[arg-type]
    assert allocator_memory() is None
