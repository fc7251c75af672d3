"""Collecting garbage for certain."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any


def collect(reference: weakref.ref[Any]) -> None:
    """Collect until an object is gone: a call does nothing while another thread is at it.

    Raises:
        AssertionError: It is still there after ten seconds.
    """
    deadline = time.monotonic() + 10
    gc.collect()
    while reference() is not None:
        assert time.monotonic() < deadline, "something holds it"
        time.sleep(0.01)
        gc.collect()
