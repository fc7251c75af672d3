"""Whether a server grows with the requests it serves: instrumented and bare, side by side, in the same minutes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import psutil

from tests.e2e.servers import SOON, Server

STEADY = {**SOON, "MALLOC_ARENA_MAX": "1"}
"""Several threads serve requests; with several arenas memory depends on which thread came when."""


@dataclass(frozen=True)
class Size:
    """How much a process has.

    Attributes:
        memory: In bytes, resident and its own.
        threads: That run.
        descriptors: That are open.
    """

    memory: int
    threads: int
    descriptors: int


@dataclass(frozen=True)
class Growth:
    """Sizes of a process after equal numbers of requests.

    Attributes:
        sizes: In order.
        step: Requests between two of them.
    """

    sizes: Sequence[Size]
    step: int

    def bytes_per_request(self) -> float:
        """Return the median slope between any two sizes of the second half: single jumps do not count."""
        late = [size.memory for size in self._second_half()]
        slopes = [
            (late[second] - late[first]) / (second - first) / self.step
            for first, second in combinations(range(len(late)), 2)
        ]
        return statistics.median(slopes)

    def added_threads(self) -> float:
        """Return by how many threads the end of the second half has more than its beginning."""
        return _added([size.threads for size in self._second_half()])

    def added_descriptors(self) -> float:
        """Return the same of open descriptors."""
        return _added([size.descriptors for size in self._second_half()])

    def _second_half(self) -> Sequence[Size]:
        """Return the sizes after the server has warmed up."""
        return self.sizes[len(self.sizes) // 2 :]


def growth(
    servers: Sequence[Server], ask: Callable[[Server, int], object], requests: int, step: int = 50
) -> list[Growth]:
    """Send the same requests to each server, taking turns, and measure the processes.

    Args:
        servers: Which run side by side.
        ask: Sends the request of a number.
        requests: How many each server gets.
        step: Requests between two measurements.
    """
    processes = [psutil.Process(server.process.pid) for server in servers]
    sizes: list[list[Size]] = [[] for _ in servers]
    for first in range(0, requests, step):
        for server, process, taken in zip(servers, processes, sizes, strict=True):
            for number in range(first, first + step):
                ask(server, number)
            taken.append(_size(process))
    return [Growth(taken, step) for taken in sizes]


def _added(numbers: Sequence[int]) -> float:
    """Return the median of the last third less that of the first: a connection that happens to be open is no growth."""
    third = max(len(numbers) // 3, 1)
    return statistics.median(numbers[-third:]) - statistics.median(numbers[:third])


def _size(process: psutil.Process) -> Size:
    return Size(process.memory_full_info().uss, process.num_threads(), process.num_fds())
