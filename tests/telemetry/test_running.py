"""What runs: its id on spans, one event a manifest, an info metric, and a hazard that only files show."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from otel_specdecode.identity import declared
from otel_specdecode.identity.manifest import Pair
from otel_specdecode.identity.models import LoadedModel, ModelIdentity, TokenizerIdentity
from otel_specdecode.telemetry.names import Attr, Event, Metrics
from otel_specdecode.testing.capture import Telemetry
from otel_specdecode.testing.checker import assert_conformant
from otel_specdecode.testing.fake import FakeClock, FakeRound, Script, fake_request, fake_stream
from otel_specdecode.thresholds import thresholds

AUTOREGRESSIVE = Script(tokens=3)
SPECULATIVE = Script(rounds=(FakeRound(4, 3), FakeRound(4, 5)))


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test declares is not there in the next."""
    monkeypatch.delenv("OTEL_SPECDECODE_RUN_ID", raising=False)
    monkeypatch.setattr(declared, "_current", None)


def model(name: str, vocabulary: str = "v") -> LoadedModel:
    """A loaded model; its vocabulary has eight tokens."""
    return LoadedModel(
        ModelIdentity(
            name, "f" * 64, tokenizer=TokenizerIdentity("BPE", vocabulary_size=8, vocabulary_sha256=vocabulary)
        )
    )


def play(telemetry: Telemetry, script: Script, pair: Pair | None, **changes: Any) -> None:
    """Play a script as a request of this pair."""
    request = replace(fake_request(script), pair=pair, **changes)
    list(fake_stream(telemetry.listener(), script, FakeClock(), request))


def alone() -> Pair:
    """A target without a draft."""
    return Pair("mlx", "none", model("target"))


def both(target: str = "v", draft: str = "v") -> Pair:
    """A target and a draft, with these vocabularies."""
    return Pair("mlx", "draft_model", model("target", target), model("draft", draft))


def manifests(telemetry: Telemetry) -> list[dict[str, Any]]:
    """The attributes of the manifest events."""
    records = [each.log_record for each in telemetry.logs()]
    return [dict(each.attributes) for each in records if each.event_name == Event.SPECDECODE_MANIFEST]


def manifest_ids(telemetry: Telemetry) -> list[Any]:
    """The manifest ids of the spans."""
    return [(span.attributes or {}).get(Attr.SPECDECODE_MANIFEST_ID) for span in telemetry.spans()]


def test_every_span_has_the_id_of_the_one_event_that_tells_the_manifest(telemetry: Telemetry) -> None:
    pair, listener = both(), telemetry.listener()
    for _ in range(3):
        list(fake_stream(listener, SPECULATIVE, FakeClock(), replace(fake_request(SPECULATIVE), pair=pair)))
    (told,) = manifests(telemetry)
    ids = manifest_ids(telemetry)
    assert ids == [told[Attr.SPECDECODE_MANIFEST_ID]] * 3
    document = json.loads(told[Attr.SPECDECODE_MANIFEST_DOCUMENT])
    assert document["manifest_id"] == ids[0]
    assert (document["target"]["name"], document["draft"]["model"]["name"]) == ("target", "draft")
    assert_conformant(spans=telemetry.spans(), metrics=telemetry.metrics_data(), logs=telemetry.logs())


def test_another_draft_is_another_manifest_and_another_event(telemetry: Telemetry) -> None:
    listener = telemetry.listener()
    for pair, script in ((alone(), AUTOREGRESSIVE), (both(), SPECULATIVE)):
        list(fake_stream(listener, script, FakeClock(), replace(fake_request(script), pair=pair)))
    assert len({*manifest_ids(telemetry)}) == 2
    assert [told[Attr.SPECDECODE_METHOD] for told in manifests(telemetry)] == ["none", "draft_model"]


def test_where_the_engine_does_not_tell_there_is_no_id_and_no_event(telemetry: Telemetry) -> None:
    play(telemetry, AUTOREGRESSIVE, None)
    assert manifest_ids(telemetry) == [None]
    assert manifests(telemetry) == []
    assert telemetry.points(Metrics.SPECDECODE_CONFIG_INFO.name) == []


def test_a_run_id_is_on_spans_and_events_and_not_in_the_manifest_id(telemetry: Telemetry) -> None:
    pair = both()
    for run in ("canary-7", "canary-8"):
        declared.declare(run_id=run)
        play(telemetry, SPECULATIVE, pair)
    assert [(span.attributes or {})[Attr.SPECDECODE_RUN_ID] for span in telemetry.spans()] == ["canary-7", "canary-8"]
    assert len({*manifest_ids(telemetry)}) == 1
    (told,) = manifests(telemetry)
    assert told[Attr.SPECDECODE_RUN_ID] == "canary-7"
    assert "canary" not in told[Attr.SPECDECODE_MANIFEST_DOCUMENT]


def test_a_declared_policy_is_in_the_manifest(telemetry: Telemetry) -> None:
    pair = both()
    play(telemetry, SPECULATIVE, pair)
    declared.declare(guard_policy={"accept_rate": 0.4})
    play(telemetry, SPECULATIVE, pair)
    assert len({*manifest_ids(telemetry)}) == 2
    (point,) = telemetry.points(Metrics.SPECDECODE_CONFIG_INFO.name)
    assert point.labels[Attr.SPECDECODE_POLICY_HASH] != "none"


def test_the_info_metric_has_every_label_and_one_series_a_configuration(telemetry: Telemetry) -> None:
    play(telemetry, AUTOREGRESSIVE, alone())
    pair = both()
    play(telemetry, SPECULATIVE, pair)
    play(telemetry, SPECULATIVE, pair, draft_max_tokens=99)
    points = telemetry.points(Metrics.SPECDECODE_CONFIG_INFO.name)
    assert [point.value for point in points] == [1, 1, 1]
    assert all(set(point.labels) == set(Metrics.SPECDECODE_CONFIG_INFO.labels) for point in points)
    told = {(point.labels[Attr.SPECDECODE_DRAFT_MODEL], point.labels[Attr.SPECDECODE_DRAFT_LENGTH]) for point in points}
    assert told == {("none", "0"), ("draft", "4"), ("draft", "16+")}


def test_a_new_manifest_takes_the_place_of_the_one_before(telemetry: Telemetry) -> None:
    for vocabulary in ("old", "new"):
        play(telemetry, AUTOREGRESSIVE, Pair("mlx", "none", model("target", vocabulary)))
    (point,) = telemetry.points(Metrics.SPECDECODE_CONFIG_INFO.name)
    assert point.labels[Attr.SPECDECODE_MANIFEST_ID] == manifest_ids(telemetry)[-1]


def test_configurations_do_not_grow_without_end(telemetry: Telemetry) -> None:
    most = thresholds()["labels"]["configurations"]
    for number in range(most + 5):
        play(telemetry, AUTOREGRESSIVE, alone(), model=f"model-{number}")
    points = telemetry.points(Metrics.SPECDECODE_CONFIG_INFO.name)
    names = {point.labels[Attr.GEN_AI_REQUEST_MODEL] for point in points}
    assert names == {f"model-{number}" for number in range(5, most + 5)}


@pytest.mark.parametrize(
    ("pair", "script", "met"),
    [
        (both("one", "other"), SPECULATIVE, True),
        (both(), SPECULATIVE, False),
        (both("one", "other"), AUTOREGRESSIVE, False),
        (Pair("mlx", "draft_model", model("target")), SPECULATIVE, False),
    ],
    ids=["differ", "equal", "nothing proposed against it", "draft unknown"],
)
def test_vocabularies_that_differ_are_a_hazard(telemetry: Telemetry, pair: Pair, script: Script, met: bool) -> None:
    play(telemetry, script, pair)
    hazards = (telemetry.span().attributes or {}).get(Attr.SPECDECODE_HAZARD_IDS, ())
    assert hazards == (("vocab_mismatch",) if met else ())
    if met:
        assert telemetry.total("specdecode.hazards", hazard_id="vocab_mismatch") == 1


def test_without_fingerprints_there_is_no_id_until_the_files_can_be_read(telemetry: Telemetry) -> None:
    """An id over a name alone would be equal for any weights of that name."""
    tries = []

    def read(known: ModelIdentity) -> ModelIdentity:
        tries.append(known)
        if len(tries) == 1:
            raise OSError("the disk is gone")
        return replace(known, fingerprint="f" * 64)

    pair = Pair("mlx", "none", LoadedModel(ModelIdentity("target"), read))
    for _ in range(2):
        play(telemetry, AUTOREGRESSIVE, pair)
    first, second = manifest_ids(telemetry)
    assert first is None
    assert [told[Attr.SPECDECODE_MANIFEST_ID] for told in manifests(telemetry)] == [second]


def test_a_draft_that_is_not_known_leaves_the_pair_without_an_id(telemetry: Telemetry) -> None:
    play(telemetry, SPECULATIVE, Pair("mlx", "draft_model", model("target")))
    assert manifest_ids(telemetry) == [None]
