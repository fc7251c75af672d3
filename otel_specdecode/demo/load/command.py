"""The load from beginning to end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console

import otel_specdecode
from otel_specdecode.demo import terminal
from otel_specdecode.demo.engines.interface import Engine
from otel_specdecode.demo.load import report, settings, sums_file
from otel_specdecode.demo.load.crew import Crew
from otel_specdecode.demo.load.mac.node import Node
from otel_specdecode.demo.load.outlet import Outlet
from otel_specdecode.demo.load.plan import Load
from otel_specdecode.demo.needs import DemoError
from otel_specdecode.doctor.destinations import Destination
from otel_specdecode.doctor.environment import public_url
from otel_specdecode.telemetry.bursts import finish_bursts
from otel_specdecode.telemetry.listener import recorder
from otel_specdecode.telemetry.setup import service_resource

SERVICE = "demo-load"
ENDPOINT = "http://localhost:4317"
"""Where the exporters themselves send if nobody says."""

_CONNECT_SECONDS = 2.0
_RECORD_SECONDS = 30.0
_ROOM_BYTES = 32 * 1024**2
_ELSEWHERE = "look at the disk of the temporary folder, or name another in TMPDIR"


def run(engines: Sequence[Engine], load: Load, *, synthetic: bool = True, json_file: Path | None = None) -> bool:
    """Run the load, print what was sent, and write it where that is wanted.

    Args:
        engines: What runs it, all at the same time.
        load: How much.
        synthetic: Whether a synthetic Mac runs beside them.
        json_file: Where the sums are written.

    Returns:
        Whether it ran until its end or until SIGTERM, and not until Ctrl-C.

    Raises:
        DemoError: If it cannot go on, or nothing of it was taken.
    """
    if json_file is not None:
        sums_file.check(json_file)
    spans_to = check_listening()
    console = terminal.make_console()
    with _until_told() as told, _scratch() as scratch:
        done = _run(console, engines, load, synthetic, told.stop, scratch, _shown(spans_to))
    try:
        if json_file is not None:
            sums_file.write(json_file, json.dumps(report.as_json(done), indent=1) + "\n")
    finally:
        report.show(console, done)
    _check_taken(done, spans_to)
    return not told.by_key


def check_listening() -> Destination:
    """Return where the spans go.

    Raises:
        DemoError: If nothing listens there, or a variable that says where makes no sense.
    """
    found = settings.destinations(os.environ)
    for url in dict.fromkeys(each.url for each in found):
        if not _listens(url):
            raise DemoError(
                f"nothing listens at {public_url(url)}. `make stack` starts a collector and Prometheus here, and "
                "`GRAFANA_ADMIN_PASSWORD=... docker compose -f collector/compose.yaml up` the whole stack; "
                "OTEL_EXPORTER_OTLP_ENDPOINT names another place"
            )
    return found[0]


def _shown(destination: Destination) -> str:
    return public_url(destination.url).removesuffix(f"/v1/{destination.signal}")


def _check_taken(done: report.Done, spans_to: Destination) -> None:
    outlets = [outlet for outlet in (done.outlet, done.synthetic) if outlet is not None]
    if any(outlet.ended for outlet in outlets) and not any(outlet.sums.total().requests for outlet in outlets):
        raise DemoError(
            f"no span was taken at {_shown(spans_to)}, which was spoken to over {spans_to.protocol}. Look at protocol "
            "and port, 4317 is for gRPC and 4318 for HTTP; OTEL_EXPORTER_OTLP_PROTOCOL is grpc or http/protobuf"
        )


def _listens(url: str) -> bool:
    parts = urlsplit(url if "://" in url else f"//{url}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise DemoError("the endpoint is no address: its port is not well written") from None
    try:
        with socket.create_connection((parts.hostname or "localhost", port), _CONNECT_SECONDS):
            return True
    except OSError:
        return False


def _run(
    console: Console,
    engines: Sequence[Engine],
    load: Load,
    synthetic: bool,
    stop: threading.Event,
    scratch: Path,
    endpoint: str,
) -> report.Done:
    titles = " and ".join(engine.title for engine in engines)
    terminal.say(console, f"Sending to {endpoint}. Loading the models for {titles} ...")
    with settings.refused_by_the_sdk():
        outlet, node = Outlet(service_resource(SERVICE, {}), ENDPOINT), None
    try:
        _instrument(outlet)
        with _loaded(engines, load, stop, scratch) as crew:
            began = time.time()
            node = Node(load.seconds, load.seed, ENDPOINT) if synthetic else None
            _announce(console, load, began)
            crew.work()
            ended = time.time()
    finally:
        taken = _close(outlet, node)
    windows = node.replay.story.windows if node is not None else ()
    states = [(each.name, began + each.start, min(began + each.end, ended)) for each in windows]
    return report.Done(
        load=load,
        engines=[engine.name for engine in engines],
        began=began,
        ended=ended,
        interrupted=stop.is_set(),
        dropped=crew.dropped,
        outlet=outlet,
        taken=taken,
        states=[(name, start, end) for name, start, end in states if start < end],
        synthetic=None if node is None else node.outlet,
    )


def _loaded(engines: Sequence[Engine], load: Load, stop: threading.Event, scratch: Path) -> Crew:
    try:
        return Crew(engines, load, stop, scratch)
    except Exception as error:
        # On a full disk each library fails in its own way, some with names of files and no reason.
        if _is_full(scratch):
            why = "there is no room left"
        elif isinstance(error, OSError):
            why = error.strerror or "a file cannot be written"
        else:
            raise
        raise DemoError(f"the models cannot be prepared: {why}; {_ELSEWHERE}") from error


def _is_full(scratch: Path) -> bool:
    """Return whether there is no room for temporary files: Python goes elsewhere if TMPDIR is full, MLX does not."""
    folders = {scratch, Path(os.environ.get("TMPDIR") or scratch)}
    return any(shutil.disk_usage(folder).free < _ROOM_BYTES for folder in folders if folder.is_dir())


@contextmanager
def _scratch() -> Iterator[Path]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="otel-specdecode-load-")
    except OSError as error:
        why = "" if isinstance(error, FileNotFoundError) else f": {error.strerror}"
        raise DemoError(f"there is no room for temporary files{why}; {_ELSEWHERE}") from error
    with folder as path:
        yield Path(path)


def _instrument(outlet: Outlet) -> None:
    tracer_provider, meter_provider, logger_provider = outlet.providers
    otel_specdecode.instrument(
        tracer_provider=tracer_provider, meter_provider=meter_provider, logger_provider=logger_provider
    )


def _close(outlet: Outlet, node: Node | None) -> bool:
    """End what runs and send what is left, the readings of the machines included; then stop to read them."""
    if node is not None:
        node.stop()
    recorder.put(finish_bursts)
    recorder.drain(_RECORD_SECONDS)
    taken = outlet.finish()
    if node is not None:
        taken = node.close() and taken
    otel_specdecode.uninstrument()
    return taken


def _announce(console: Console, load: Load, began: float) -> None:
    until = f"From {report.utc(began)} to {report.utc(began + load.seconds)}; Ctrl-C ends it before that."
    terminal.say(console, until)
    if load.burst.seconds:
        start = began + load.burst.start
        terminal.say(console, f"A bad draft from {report.utc(start)} to {report.utc(start + load.burst.seconds)}.")


@dataclass
class _Told:
    """What somebody told the load.

    Attributes:
        stop: Set by SIGINT and SIGTERM, and by what fails.
        by_key: Whether it was Ctrl-C.
    """

    stop: threading.Event = field(default_factory=threading.Event)
    by_key: bool = False


@contextmanager
def _until_told() -> Iterator[_Told]:
    """Listen to SIGINT and SIGTERM: the first of them ends the load as the end of its time does."""
    told = _Told()

    def tell(number: int, _frame: Any) -> None:
        if not told.stop.is_set():
            told.by_key = number == signal.SIGINT
        told.stop.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
