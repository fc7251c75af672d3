"""Other engines on this host: processes of the same user, and what answers on the usual local ports.

Of a process only the engine's name and the pid are kept, never its command line. A port is asked with GET requests
without a body, on loopback alone.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from otel_specdecode.doctor.checks import Check
from otel_specdecode.doctor.daemons import side_by_side, within

PORTS = (8080, 11434, 1234, 8000)
"""Where llama-server and mlx_lm.server, Ollama, LM Studio, vLLM and llama_cpp.server listen unless told otherwise."""

PORT_SECONDS = 0.5
_ALL_SECONDS = 2.0
_MOST_BYTES = 1 << 18

# Servers that the wrapper can watch if it is started with them.
_WATCHABLE = {"mlx_lm.server": "mlx_lm.server", "llama_cpp.server": "llama_cpp.server"}
_METRICS = {"llama-server": "/metrics, if it was started with --metrics", "vLLM": "/metrics"}

# Programs by name, and Python modules or scripts by the name they are started with.
_PROGRAMS = {
    "llama-server": "llama-server",
    "ollama": "Ollama",
    "lms": "LM Studio",
    "lm studio": "LM Studio",
    "lm-studio": "LM Studio",
    "mlx_lm.server": "mlx_lm.server",
    "llama_cpp.server": "llama_cpp.server",
    "vllm": "vLLM",
    "vllm-mlx": "vllm-mlx",
    "omlx": "oMLX",
    "rapid-mlx": "Rapid-MLX",
    "mlx-openai-server": "mlx-openai-server",
    "koboldcpp": "koboldcpp",
    "exo": "exo",
}
_WRAPPERS = ("opentelemetry-instrument",)
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*(\.exe)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Running:
    """An engine in another process."""

    engine: str
    pid: int


@dataclass(frozen=True, slots=True)
class Listening:
    """A server of an engine on a local port."""

    engine: str
    port: int


def neighbour_checks(
    processes: Callable[[], Sequence[Running]] | None = None, ports: Iterable[int] = PORTS
) -> list[Check]:
    """Return the other engines that were found and what their being there means."""
    ports = tuple(ports)
    listening = side_by_side(_listening_in_time, ports)
    running = (processes or running_engines)()
    checks = [_check("process", each.pid, each.engine, f"runs as process {each.pid}") for each in running]
    checks += [
        _check("port", each.port, each.engine, f"answers on port {each.port}") for each in listening if each is not None
    ]
    if not checks:
        where = ", ".join(map(str, ports))
        checks = [
            Check("neighbour.none", "other engines", "ok", f"none found among your processes and on ports {where}")
        ]
    return checks


def _check(kind: str, number: int, engine: str, told: str) -> Check:
    facts = {"engine": engine, "pid" if kind == "process" else kind: number}
    return Check(f"neighbour.{kind}.{number}", engine, "ok", f"{told}. {_meaning(engine)}", facts=facts)


def _meaning(engine: str) -> str:
    if engine in _WATCHABLE:
        return "It is watched only if it was started under opentelemetry-instrument (docs/servers.md)."
    metrics = (
        f"; it has counters of its own ({_METRICS[engine]}) that a collector can scrape" if engine in _METRICS else ""
    )
    return f"This engine runs in another process: the wrapper does not see it{metrics}."


def running_engines() -> list[Running]:
    """Return the engines among this user's processes, this one and its parents and children left out."""
    me = psutil.Process()
    own = {me.pid} | {process.pid for process in (*me.parents(), *me.children(recursive=True))}
    return engines_among(process for process in psutil.process_iter() if process.pid not in own)


def engines_among(processes: Iterable[psutil.Process]) -> list[Running]:
    """Return the engines among processes, as far as they are this user's."""
    found = []
    for process in processes:
        with suppress(psutil.Error, OSError):
            engine = engine_of(process.name(), process.cmdline()) if _is_mine(process) else None
            if engine is not None:
                found.append(Running(engine, process.pid))
    return sorted(found, key=lambda each: (each.engine, each.pid))


def _is_mine(process: psutil.Process) -> bool:
    return not hasattr(os, "getuid") or process.uids().real == os.getuid()


def engine_of(name: str, command: Sequence[str]) -> str | None:
    """Return the engine that a process is, by its name or by what Python was told to run."""
    known = _PROGRAMS.get(name.lower().removesuffix(".exe"))
    if known is not None or not command:
        return known
    program = _base(command[0])
    if _INTERPRETER.fullmatch(program):
        program = _started(command[1:])
    return _PROGRAMS.get(program.lower())


def _started(arguments: Sequence[str]) -> str:
    """Return the module or script that Python runs; `opentelemetry-instrument` in front of one is passed over."""
    rest = iter(arguments)
    for argument in rest:
        if argument == "-m":
            module = next(rest, "")
            return "vllm" if module.startswith("vllm.") else module
        if argument == "-c":
            return ""
        name = _base(argument)
        if not argument.startswith("-") and name not in _WRAPPERS and not _INTERPRETER.fullmatch(name):
            return name
    return ""


def _base(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def _listening_in_time(port: int) -> Listening | None:
    """Ask one port for so long in all; whatever goes wrong there is no matter of the other ports."""
    try:
        return within(_ALL_SECONDS, lambda: listening_engine(port))
    except Exception:
        return None


def listening_engine(port: int) -> Listening | None:
    """Return which engine's server answers on a port of this machine; None if none does, or one that is not known."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PORT_SECONDS):
            pass
    except OSError:
        return None
    for path, recognise in _QUESTIONS:
        status, document = _get(port, path)
        if not status:
            return None  # busy, or no HTTP: the next question might disturb it
        engine = recognise(document) if status == 200 else None
        if engine is not None:
            return Listening(engine, port)
    return None


def _get(port: int, path: str) -> tuple[int, Any]:
    """Return status and JSON document of a GET request; 0 where there is no answer, None where it is no JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PORT_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read(_MOST_BYTES))
    except (OSError, http.client.HTTPException):
        return 0, None
    except (ValueError, RecursionError):
        return response.status, None
    finally:
        connection.close()


def _llama_server(document: Any) -> str | None:
    known = isinstance(document, dict) and ("default_generation_settings" in document or "build_info" in document)
    return "llama-server" if known else None


def _ollama(document: Any) -> str | None:
    return "Ollama" if isinstance(document, dict) and set(document) == {"version"} else None


def _by_description(document: Any) -> str | None:
    about = document.get("info") if isinstance(document, dict) else None
    title = about.get("title") if isinstance(about, dict) else None
    return "llama_cpp.server" if "llama.cpp Python API" in str(title) else None


def _by_models(document: Any) -> str | None:
    if not isinstance(document, dict) or not isinstance(document.get("data"), list):
        return None
    owners = [each.get("owned_by") for each in document["data"] if isinstance(each, dict)]
    if "vllm" in owners:
        return "vLLM"
    return "LM Studio" if "organization_owner" in owners else "an OpenAI-compatible server"


# /v1/models last: llama_cpp.server, which its description tells, breaks off the stream it is at for it.
_QUESTIONS: tuple[tuple[str, Callable[[Any], str | None]], ...] = (
    ("/props", _llama_server),
    ("/api/version", _ollama),
    ("/openapi.json", _by_description),
    ("/v1/models", _by_models),
)
