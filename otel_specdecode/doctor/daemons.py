"""Runs calls side by side on threads that nobody has to wait for: neither the end of the process nor Ctrl-C does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")
Given = TypeVar("Given")


class Started(Generic[T]):
    """A call that runs on a daemon thread."""

    def __init__(self, call: Callable[[], T]) -> None:
        """Start it."""
        self._call = call
        self._done = threading.Event()
        self._results: list[T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def result(self, seconds: float | None = None) -> T:
        """Wait for what the call returns, or raise what it raised.

        Raises:
            TimeoutError: It took longer. Its thread goes on and ends with the process.
        """
        if not self._done.wait(seconds):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._results[0]


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return what a call returns, however little it cares for time itself.

    Raises:
        TimeoutError: It took longer.
    """
    return Started(call).result(seconds)


def side_by_side(call: Callable[[Given], T], over: Iterable[Given]) -> list[T]:
    """Return what a call returns of each, in order."""
    started = [Started(lambda each=each: call(each)) for each in over]  # type: ignore[misc]
    return [each.result() for each in started]
