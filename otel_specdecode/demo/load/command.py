"""The load from beginning to end."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console

import otel_specdecode
from otel_specdecode.demo import terminal
from otel_specdecode.demo.engines.interface import Engine
from otel_specdecode.demo.load import report, sums_file
from otel_specdecode.demo.load.crew import Crew
from otel_specdecode.demo.load.mac.node import Node
from otel_specdecode.demo.load.outlet import Outlet
from otel_specdecode.demo.load.plan import Load
from otel_specdecode.demo.needs import DemoError
from otel_specdecode.doctor.destinations import SIGNALS, SettingError, destination, exporter_names
from otel_specdecode.doctor.environment import public_url
from otel_specdecode.telemetry.bursts import finish_bursts
from otel_specdecode.telemetry.listener import recorder
from otel_specdecode.telemetry.setup import service_resource

SERVICE = "demo-load"
ENDPOINT = "http://localhost:4317"
"""Where the exporters themselves send if nobody says."""

_CONNECT_SECONDS = 2.0
_RECORD_SECONDS = 30.0


def run(engines: Sequence[Engine], load: Load, *, synthetic: bool = True, json_file: Path | None = None) -> None:
    """Run the load, print what was sent, and write it where that is wanted.

    Args:
        engines: What runs it, all at the same time.
        load: How much.
        synthetic: Whether a synthetic Mac runs beside them.
        json_file: Where the sums are written.

    Raises:
        DemoError: If it cannot go on.
    """
    if json_file is not None:
        sums_file.check(json_file)
    endpoint = check_listening()
    console = terminal.make_console()
    with _until_told() as stop, tempfile.TemporaryDirectory(prefix="otel-specdecode-load-") as scratch:
        done = _run(console, engines, load, synthetic, stop, Path(scratch), endpoint)
    report.show(console, done)
    if json_file is not None:
        sums_file.write(json_file, json.dumps(report.as_json(done), indent=1) + "\n")


def check_listening() -> str:
    """Return where the telemetry goes, as it may be shown.

    Raises:
        DemoError: If nothing listens there, or a variable that says where makes no sense.
    """
    urls: list[str] = []
    for each in SIGNALS:
        if "otlp" not in exporter_names(each, os.environ):
            raise DemoError(f"OTEL_{each.upper()}_EXPORTER leaves {each} out; unset it, or set it to otlp")
        try:
            urls.append(destination(each, os.environ).url)
        except SettingError as error:
            raise DemoError(f"{error}; {error.fix}") from error
    for url in dict.fromkeys(urls):
        if not _listens(url):
            raise DemoError(
                f"nothing listens at {public_url(url)}. `make stack` starts a collector and Prometheus here, and "
                "`GRAFANA_ADMIN_PASSWORD=... docker compose -f collector/compose.yaml up` the whole stack; "
                "OTEL_EXPORTER_OTLP_ENDPOINT names another place"
            )
    return public_url(urls[0]).removesuffix(f"/v1/{SIGNALS[0]}")


def _listens(url: str) -> bool:
    parts = urlsplit(url if "://" in url else f"//{url}")
    port = parts.port or (443 if parts.scheme == "https" else 80)
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
    outlet, node = Outlet(service_resource(SERVICE, {}), ENDPOINT), None
    try:
        _instrument(outlet)
        crew = Crew(engines, load, stop, scratch)
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


@contextmanager
def _until_told() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set: the first of them ends the load as the end of its time does."""
    stop = threading.Event()

    def tell(_number: int, _frame: Any) -> None:
        stop.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
