"""The compose file and what it mounts: valid, whole, and closed to whoever is not on this machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from collector.grafana.reading import queries
from scripts import build_collector
from tests.collector.dashboards import NAMES, dashboard
from tests.collector.promtool import promtool

pytestmark = pytest.mark.source

FOLDER = Path(__file__).parents[2] / "collector"
SCHEMA = Path(__file__).parent / "data" / "compose-spec.json"
PROVISIONING = FOLDER / "grafana" / "provisioning"
TEXTS = {".md", ".py", ".yaml"}
ON_LOOPBACK = "${SPECDECODE_BIND:-127.0.0.1}:"

Tree = dict[str, Any]


def loaded(path: Path) -> Tree:
    found: Tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


COMPOSE = loaded(FOLDER / "compose.yaml")
SERVICES: dict[str, Tree] = COMPOSE["services"]
SOURCES = {source["type"]: source for source in loaded(PROVISIONING / "datasources" / "specdecode.yaml")["datasources"]}


def mounts() -> list[tuple[str, str, str, str]]:
    """Return service, source, target and mode of each volume."""
    split = [(name, volume.split(":")) for name, service in SERVICES.items() for volume in service.get("volumes", ())]
    return [(name, source, target, "".join(mode)) for name, (source, target, *mode) in split]


def ports() -> list[tuple[str, str]]:
    return [(name, port) for name, service in SERVICES.items() for port in service.get("ports", ())]


def mounted_at(name: str, path: str) -> str:
    """Return what of this repository a service sees at a path."""
    (found,) = (source for service, source, target, _ in mounts() if (service, target) == (name, path))
    return found


def bytes_of(text: str) -> int:
    """Return a size that compose or Go writes: 640m, 409MiB."""
    number, unit = re.fullmatch(r"(\d+)(\w+)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"m": 1024**2, "MiB": 1024**2, "g": 1024**3}[unit]


# The file itself


def test_it_is_valid_by_the_compose_specification() -> None:
    jsonschema.validate(COMPOSE, json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_the_specification_would_find_a_fault() -> None:
    broken = {**COMPOSE, "services": {"collector": {**SERVICES["collector"], "memory_limit": "640m"}}}
    with pytest.raises(jsonschema.ValidationError, match="memory_limit"):
        jsonschema.validate(broken, json.loads(SCHEMA.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("service", "source", "target", "mode"), mounts())
def test_what_is_mounted_is_there(service: str, source: str, target: str, mode: str) -> None:
    if not source.startswith("."):
        assert source in COMPOSE["volumes"]
        return
    assert mode == "ro"
    path = FOLDER / source
    assert path.is_file() or any(path.iterdir())


def test_every_volume_is_used() -> None:
    assert set(COMPOSE["volumes"]) == {source for _, source, _, _ in mounts() if not source.startswith(".")}


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_is_pinned(name: str) -> None:
    _, _, tag = SERVICES[name]["image"].partition(":")
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag)


def test_the_collector_is_of_the_release_that_the_manifest_builds() -> None:
    manifest = build_collector.MANIFEST.read_text(encoding="utf-8")
    image = f"otel/opentelemetry-collector-contrib:{build_collector.release(manifest)}"
    assert SERVICES["collector"]["image"] == image


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "volume-owner"])
def test_a_program_comes_back_and_has_a_bound_of_memory(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    limit = service.get("environment", {}).get("GOMEMLIMIT")
    assert bytes_of(service["mem_limit"]) > (bytes_of(limit) if limit else 0)


def test_the_collector_collects_garbage_before_it_refuses_senders_for_good() -> None:
    environment = SERVICES["collector"]["environment"]
    limit = int(environment["OTELCOL_MEMORY_MIB"]) * 1024**2
    assert bytes_of(environment["GOMEMLIMIT"]) == int(0.8 * limit) // 1024**2 * 1024**2
    assert bytes_of(SERVICES["collector"]["mem_limit"]) > limit


# Who can reach it


@pytest.mark.parametrize(("service", "port"), ports())
def test_a_port_is_published_on_loopback_unless_a_variable_says_otherwise(service: str, port: str) -> None:
    assert port.startswith(ON_LOOPBACK)
    outside, inside = port.removeprefix(ON_LOOPBACK).rsplit(":", 1)
    assert re.fullmatch(r"\$\{[A-Z_]+:-" + inside + r"\}", outside)


def test_the_stores_without_a_door_are_not_published() -> None:
    assert {service for service, _ in ports()} == {"collector", "prometheus", "grafana"}


def test_grafana_has_no_password_but_the_one_that_is_chosen() -> None:
    environment = SERVICES["grafana"]["environment"]
    asked = r"\$\{GRAFANA_ADMIN_PASSWORD:\?set GRAFANA_ADMIN_PASSWORD .+\}"
    assert re.fullmatch(asked, environment["GF_SECURITY_ADMIN_PASSWORD"])
    assert environment["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    assert environment["GF_USERS_ALLOW_SIGN_UP"] == "false"


def test_nothing_tells_its_maker_how_it_is_used() -> None:
    environment = SERVICES["grafana"]["environment"]
    told = {name for name in environment if name.startswith("GF_ANALYTICS_")}
    assert {environment[name] for name in told} == {"false"}
    assert "GF_ANALYTICS_REPORTING_ENABLED" in told
    assert loaded(FOLDER / "tempo" / "tempo.yaml")["usage_report"] == {"reporting_enabled": False}
    assert loaded(FOLDER / "loki" / "loki.yaml")["analytics"] == {"reporting_enabled": False}


@pytest.mark.parametrize("name", ["collector", "tempo", "loki"])
def test_what_runs_without_rights_owns_its_volume(name: str) -> None:
    owner = SERVICES["volume-owner"]
    _, user, *folders = owner["entrypoint"]
    assert SERVICES[name]["user"] == user
    assert mounted_at("volume-owner", f"/volumes/{name}") == name
    assert f"/volumes/{name}" in folders
    assert SERVICES[name]["depends_on"]["volume-owner"] == {"condition": "service_completed_successfully"}


# One file agrees with the other


def test_the_variables_of_the_collector_are_those_of_its_configuration() -> None:
    known = set(re.findall(r"OTELCOL_[A-Z_]+", (FOLDER / "agent.yaml").read_text(encoding="utf-8")))
    service = SERVICES["collector"]
    assert {name for name in service["environment"] if name.startswith("OTELCOL_")} <= known
    assert {name for port in service["ports"] for name in re.findall(r"OTELCOL_[A-Z_]+", port)} <= known


def test_the_collector_writes_where_the_stores_listen() -> None:
    environment = SERVICES["collector"]["environment"]
    assert mounted_at("collector", environment["OTELCOL_STORAGE"]) == "collector"
    assert environment["OTELCOL_LISTEN"] == "0.0.0.0"
    assert "--web.listen-address=0.0.0.0:9090" in SERVICES["prometheus"]["command"]
    assert environment["OTELCOL_REMOTE_WRITE_URL"] == f"{SOURCES['prometheus']['url']}/api/v1/write"
    assert environment["OTELCOL_LOGS_URL"] == f"${{OTELCOL_LOGS_URL:-{SOURCES['loki']['url']}/otlp}}"
    protocols = loaded(FOLDER / "tempo" / "tempo.yaml")["distributor"]["receivers"]["otlp"]["protocols"]
    port = protocols["http"]["endpoint"].rpartition(":")[2]
    assert environment["OTELCOL_TRACES_URL"] == f"${{OTELCOL_TRACES_URL:-http://tempo:{port}}}"


@pytest.mark.parametrize("store", ["tempo", "loki"])
def test_a_store_keeps_its_data_on_its_volume(store: str) -> None:
    (place,) = (target for service, source, target, _ in mounts() if (service, source) == (store, store))
    text = (FOLDER / store / f"{store}.yaml").read_text(encoding="utf-8")
    folders = re.findall(r": (/\S+)", text)
    assert folders
    assert all(folder == place or folder.startswith(f"{place}/") for folder in folders)


@pytest.mark.parametrize("store", ["tempo", "loki"])
def test_grafana_asks_a_store_where_it_listens(store: str) -> None:
    port = loaded(FOLDER / store / f"{store}.yaml")["server"]["http_listen_port"]
    assert SOURCES[store]["url"] == f"http://{store}:{port}"


def test_each_link_between_stores_leads_to_one_that_is_there() -> None:
    uids = {kind: source["uid"] for kind, source in SOURCES.items()}
    (exemplar,) = SOURCES["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    (derived,) = SOURCES["loki"]["jsonData"]["derivedFields"]
    assert exemplar["datasourceUid"] == derived["datasourceUid"] == uids["tempo"]
    assert SOURCES["tempo"]["jsonData"]["tracesToLogsV2"]["datasourceUid"] == uids["loki"]
    assert (exemplar["name"], derived["matcherRegex"]) == ("trace_id", "trace_id")


def test_tempo_answers_the_metrics_that_dashboards_ask_it_for() -> None:
    counted = re.compile(r"\|\s*(rate|count_over_time|\w+_over_time)\(")
    asked = [
        one for name in NAMES for one in queries(dashboard(name)) if one.kind == "tempo" and counted.search(one.expr)
    ]
    assert asked
    tempo = loaded(FOLDER / "tempo" / "tempo.yaml")
    assert "local-blocks" in tempo["overrides"]["defaults"]["metrics_generator"]["processors"]
    generator = tempo["metrics_generator"]
    # Kept for as long as traces are, and spans of kind INTERNAL too, which all of ours are.
    assert generator["processor"]["local_blocks"] == {"flush_to_storage": True, "filter_server_spans": False}
    folders = [
        generator["storage"]["path"],
        generator["traces_storage"]["path"],
        tempo["storage"]["trace"]["wal"]["path"],
    ]
    assert len(set(folders)) == len(folders)


def test_grafana_shows_the_dashboards_of_this_repository() -> None:
    (provider,) = loaded(PROVISIONING / "dashboards" / "specdecode.yaml")["providers"]
    assert mounted_at("grafana", provider["options"]["path"]) == "./grafana/dashboards"


def test_prometheus_has_the_generated_rules_beside_its_configuration() -> None:
    (path,) = (
        option.partition("=")[2] for option in SERVICES["prometheus"]["command"] if option.startswith("--config.file=")
    )
    assert mounted_at("prometheus", path) == "./prometheus/prometheus.yaml"
    assert loaded(FOLDER / "prometheus" / "prometheus.yaml")["rule_files"] == ["rules/*.yaml"]
    assert mounted_at("prometheus", path.replace("prometheus.yaml", "rules")) == "./prometheus/rules"


def test_the_readme_names_every_variable() -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)", (FOLDER / "compose.yaml").read_text(encoding="utf-8")))
    assert used <= set(re.findall(r"`([A-Z_]+)`", (FOLDER / "README.md").read_text(encoding="utf-8")))


def test_whoever_is_told_to_start_it_is_told_of_the_password() -> None:
    """Else the first thing that they see is an error."""
    root = FOLDER.parent
    told = {path: path.read_text(encoding="utf-8") for path in (*root.glob("*.md"), *root.glob("docs/**/*.md"))}
    for folder in (FOLDER, root / "otel_specdecode"):
        told |= {path: path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.suffix in TEXTS}
    found = [
        (path.name, "GRAFANA_ADMIN_PASSWORD=" in text[max(0, start - 120) : start])
        for path, text in told.items()
        for start in (match.start() for match in re.finditer(r"docker compose -f \S+compose[.]yaml up", text))
    ]
    assert {name for name, _ in found} >= {"README.md", "compose.yaml", "command.py"}
    assert [name for name, has_it in found if not has_it] == []


@pytest.mark.e2e
def test_prometheus_takes_its_configuration() -> None:
    done = promtool("check", "config", FOLDER / "prometheus" / "prometheus.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS: 5 rule files found" in done.stdout
