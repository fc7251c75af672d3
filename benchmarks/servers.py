"""The engines' own web servers, bare and with no line of code changed: throughput over HTTP, in turns."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from benchmarks.installed import has_llama_cpp, has_mlx, there
from benchmarks.results import Comparison, Section
from benchmarks.servers_load import Shape
from benchmarks.servers_running import Block, Server, Variant, script, servers, sink
from benchmarks.statistics import Array, Target, median
from otel_specdecode.tiny_pair import model_path

THROUGHPUT_KEPT = Target(0.98, "at least")
MILLISECONDS, MICROSECONDS = 1e3, 1e6

BARE = Variant("bare", None)


@dataclass(frozen=True, slots=True)
class Case:
    """A server and how it is asked.

    Attributes:
        name: Of the rows.
        command: What starts it, but for the port.
        ours: This library's instrumentation, by entry point.
        framework: Instrumentation of its web framework that a user has beside it, None if there is none.
        clients: Connections that ask at a time.
    """

    name: str
    command: tuple[str, ...]
    ours: str
    framework: str | None
    clients: int

    def variants(self) -> list[Variant]:
        """Return the ways to start it."""
        made = [BARE, Variant("ours, no export", (self.ours,), exports=False), Variant("ours", (self.ours,))]
        if self.framework is not None:
            both = Variant("FastAPI and ours", (self.framework, self.ours))
            made += [Variant("FastAPI", (self.framework,)), both]
        return made


class Against(NamedTuple):
    """What a variant is compared with, and whether that is held against the target."""

    base: str
    held: bool


AGAINST = {
    "ours, no export": Against("bare", held=False),
    "ours": Against("bare", held=True),
    "FastAPI": Against("bare", held=False),
    "FastAPI and ours": Against("FastAPI", held=True),
}


@dataclass(frozen=True, slots=True)
class Found:
    """What the blocks of a variant had: arrays of a value a round.

    Attributes:
        seconds: Wall time.
        cpu: CPU time of the server's process, in seconds.
        requests: All were answered.
        tokens: Generated.
    """

    seconds: Array
    cpu: Array
    requests: Array
    tokens: Array

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Found:
        """Take the blocks apart."""
        columns = zip(*((each.seconds, each.cpu_seconds, each.requests, each.tokens) for each in blocks), strict=True)
        return cls(*(np.asarray(column, float) for column in columns))

    def speeds(self) -> dict[str, Array]:
        """Return throughputs by unit; the last is what a server has that waits for nothing but its own process."""
        return {
            "tokens/s": self.tokens / self.seconds,
            "requests/s": self.requests / self.seconds,
            "tokens/CPU s": self.tokens / self.cpu,
        }


ByVariant = Mapping[str, Found]


def real_servers(*, rounds: int = 40, short: int = 40, long: int = 6) -> Section:
    """Measure throughput and CPU time of each server, asked by several clients at a time.

    Args:
        rounds: In each every variant has two blocks.
        short: Requests of a block whose answers have one token.
        long: Requests of a block whose answers have 32 to 128 tokens.
    """
    section = Section(
        "Servers",
        "the tiny pair over HTTP: wall time, and CPU time of the server's process, exports included, the receiver's not"
        f"{_left_out()}",
    )
    shapes = (Shape("1 token", short, (1, 1)), Shape("32 to 128 tokens", long, (32, 128), streamed=True))
    with TemporaryDirectory() as folder:
        for case in cases(Path(folder)):
            measure(section, case, shapes, rounds)
    return section


def measure(section: Section, case: Case, shapes: tuple[Shape, Shape], rounds: int) -> None:
    """Ask the variants of a server in turns, with requests of one token and then of many, and add what was found.

    Raises:
        RuntimeError: If a server fails, or records or sends nothing: that would cost nothing.
    """
    variants = case.variants()
    with TemporaryDirectory() as folder, sink() as receiver:
        with servers(variants, case.command, Path(folder), receiver) as running:
            short, long = (in_turns(running, shape, case.clients, rounds) for shape in shapes)
            for server in running.values():
                server.check()
        for variant in variants:
            # Without ours uvicorn ends by SIGTERM itself, and what a short run has recorded is lost.
            if variant.exports and case.ours in (variant.instrumentations or ()):
                receiver.check(variant, ("traces", "metrics"))
    for shape, found in zip(shapes, (short, long), strict=True):
        tell(section, f"{case.name}, {shape.name}", found)
    tell_added(section, f"{case.name}, CPU time added", short, long)


def in_turns(running: Mapping[str, Server], shape: Shape, clients: int, rounds: int) -> ByVariant:
    """Return what each variant's blocks had, a round each: two in mirrored places of it (A B C C B A).

    What drifts evenly during a round hits all of them alike. One round before the first is thrown away.
    """
    order, chance, bodies = list(running), random.Random(9), shape.bodies()
    blocks: dict[str, list[Block]] = {name: [] for name in running}
    for number in range(-1, rounds):
        chance.shuffle(order)
        there = {name: running[name].block(bodies, clients) for name in order}
        back = {name: running[name].block(bodies, clients) for name in reversed(order)}
        if number >= 0:
            for name, kept in blocks.items():
                kept.append(there[name] + back[name])
    return {name: Found.of(kept) for name, kept in blocks.items()}


def tell(section: Section, case: str, found: ByVariant) -> None:
    """Add a row for each variant; ratios are medians of those within rounds."""
    speeds = {name: each.speeds() for name, each in found.items()}
    for name, own in speeds.items():
        section.keep(case, {f"{name}, {unit}": values for unit, values in own.items()})
        comparisons = []
        if name in AGAINST:
            base, held = AGAINST[name]
            kept = {unit: median(values / speeds[base][unit]) for unit, values in own.items()}
            target = THROUGHPUT_KEPT if held else None
            comparisons = [
                Comparison(f"x {base}", kept["tokens/s"], target),
                Comparison(f"x {base} by CPU time", kept["tokens/CPU s"], target),
                Comparison(f"x {base} in requests/s", kept["requests/s"]),
            ]
        section.add(case, name, own["tokens/s"], "tokens/s", comparisons)


def tell_added(section: Section, case: str, short: ByVariant, long: ByVariant) -> None:
    """Add what a request costs once and what each further token costs: these do not grow with the model."""
    for name, (base, _) in AGAINST.items():
        if name not in short:
            continue
        once, all_of_it = (
            found[name].cpu / found[name].requests - found[base].cpu / found[base].requests for found in (short, long)
        )
        further = np.median(long[name].tokens / long[name].requests) - 1
        section.add(case, f"{name} over {base}, a request of 1 token", once * MILLISECONDS, "ms")
        section.add(case, f"{name} over {base}, a further token", (all_of_it - once) / further * MICROSECONDS, "us")


def cases(folder: Path) -> Iterator[Case]:
    """Give the servers that are installed."""
    target, draft = str(model_path("target")), str(model_path("draft"))
    if has_mlx():
        plain = (str(script("mlx_lm.server")), "--model", target)
        yield Case("mlx_lm.server, batching", plain, "mlx_lm", None, clients=4)
        yield Case("mlx_lm.server, draft model", (*plain, "--draft-model", draft), "mlx_lm", None, clients=2)
    if _has_llama_cpp_server():
        from otel_specdecode.tiny_pair.gguf import convert

        model = convert(model_path("target"), folder / "target.gguf", "f32")
        framework = "fastapi" if there("opentelemetry.instrumentation.fastapi") else None
        options = {"host": "127.0.0.1", "model": model, "n_ctx": 512, "verbose": "false", "interrupt_requests": "false"}
        options |= {"n_threads": 1, "n_threads_batch": 1}
        pairs = (part for name, value in options.items() for part in (f"--{name}", str(value)))
        plain = (sys.executable, "-m", "llama_cpp.server", *pairs)
        yield Case("llama_cpp.server, AR", plain, "llama_cpp", framework, clients=2)
        lookup = (*plain, "--draft_model", "prompt-lookup-decoding")
        yield Case("llama_cpp.server, prompt lookup", lookup, "llama_cpp", framework, clients=2)


def _left_out() -> str:
    """Return the end of the note: which rows are missing and why, nothing if none is."""
    missing = []
    if not has_mlx():
        missing.append("no rows for mlx_lm.server: mlx-lm is not installed")
    if not _has_llama_cpp_server():
        missing.append("no rows for llama_cpp.server: it, or gguf, is not installed")
    elif not there("opentelemetry.instrumentation.fastapi"):
        missing.append("no rows for FastAPI: its instrumentation is not installed")
    return "".join(f"; {each}" for each in missing)


def _has_llama_cpp_server() -> bool:
    return has_llama_cpp() and there("fastapi", "uvicorn", "sse_starlette", "starlette_context", "pydantic_settings")
