"""Each gate of the generator is proved by a registry that is broken in one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import generate
import pytest

MODE = "      - id: specdecode.mode\n"
STARTED = 'metric_name: specdecode.request.started\n    instrument: counter\n    unit: "{request}"\n'
OTHER_RATE = """\
- id: {}
        type: double
        examples: [1.0]
        brief: A rate.
      - id: specdecode.accept_rate
"""

BROKEN = {
    "unknown reference": (
        "model/events.yaml",
        "- ref: specdecode.mode\n",
        "- ref: specdecode.mood\n",
        "events.yaml: event.specdecode.hazard.detected: refers to the unknown attribute specdecode.mood",
    ),
    "unknown upstream attribute": (
        "overlay.yaml",
        "  gen_ai.request.seed:\n",
        "  gen_ai.request.seeds:\n",
        "overlay.yaml: gen_ai.request.seeds: is not in upstream.lock.yaml",
    ),
    "unknown extended group": (
        "model/metrics.yaml",
        "    extends: metric_attributes.specdecode.base\n",
        "    extends: metric_attributes.specdecode.basis\n",
        "metrics.yaml: metric_attributes.specdecode.basis: is referred to but defined nowhere",
    ),
    "duplicate group": (
        "model/events.yaml",
        "id: event.specdecode.hazard.detected\n",
        "id: span.specdecode.batch\n",
        "spans.yaml: span.specdecode.batch: is already defined in events.yaml",
    ),
    "duplicate attribute": (
        "model/attributes-run.yaml",
        "- id: specdecode.requested_mode\n",
        "- id: specdecode.mode\n",
        "attributes-run.yaml: specdecode.mode: is already defined in attributes-run.yaml",
    ),
    "duplicate metric": (
        "model/metrics.yaml",
        "metric_name: specdecode.hazards\n",
        "metric_name: specdecode.fallbacks\n",
        "metrics: specdecode.fallbacks: has the same constant as specdecode.fallbacks",
    ),
    "constants that collide": (
        "model/attributes-draft.yaml",
        "- id: specdecode.accept_rate\n",
        OTHER_RATE.format("specdecode.accept.rate"),
        "attributes-draft.yaml: specdecode.accept_rate: has the same constant as specdecode.accept.rate",
    ),
    "name that is a namespace": (
        "model/attributes-draft.yaml",
        "- id: specdecode.accept_rate\n",
        OTHER_RATE.format("specdecode.accept_rate.mean"),
        "attributes-draft.yaml: specdecode.accept_rate.mean: makes the name specdecode.accept_rate a namespace",
    ),
    "foreign attribute namespace": (
        "model/attributes-draft.yaml",
        "- id: specdecode.accept_rate\n",
        "- id: gen_ai.accept_rate\n",
        "attributes-draft.yaml: gen_ai.accept_rate: lies outside the namespace specdecode",
    ),
    "foreign metric namespace": (
        "model/metrics.yaml",
        "metric_name: specdecode.hazards\n",
        "metric_name: gen_ai.hazards\n",
        "metrics.yaml: gen_ai.hazards: lies outside the namespace specdecode",
    ),
    "foreign event namespace": (
        "model/events.yaml",
        "name: specdecode.hazard.detected\n",
        "name: gen_ai.hazard.detected\n",
        "events.yaml: gen_ai.hazard.detected: lies outside the namespace specdecode",
    ),
    "enum without members": (
        "model/attributes-run.yaml",
        MODE,
        "      - {id: specdecode.empty, type: {members: []}, brief: None., stability: development}\n" + MODE,
        "attributes-run.yaml: specdecode.empty: is an enum without members",
    ),
    "unknown type": (
        "model/attributes-run.yaml",
        "type: string[]",
        "type: strings",
        "attributes-run.yaml: specdecode.hazard.ids: has the unknown type strings",
    ),
    "no examples": (
        "model/attributes-run.yaml",
        "        examples: [4]\n",
        "",
        "attributes-run.yaml: specdecode.batch.size: has no examples",
    ),
    "no brief": (
        "model/attributes-run.yaml",
        "brief: The path the caller asked for.",
        "note: The path the caller asked for.",
        "attributes-run.yaml: specdecode.requested_mode: has no brief",
    ),
    "attribute on no signal": (
        "model/attributes-run.yaml",
        MODE,
        "      - {id: specdecode.idle, type: string, brief: A., examples: [a], stability: development}\n" + MODE,
        "attributes-run.yaml: specdecode.idle: is on no span, metric, event or entity",
    ),
    "unknown requirement level": (
        "model/events.yaml",
        "requirement_level: required",
        "requirement_level: vital",
        "events.yaml: specdecode.hazard.id: has the unknown requirement level vital",
    ),
    "metric without unit": (
        "model/metrics.yaml",
        STARTED,
        STARTED.replace("    unit:", "    note:"),
        "metrics.yaml: specdecode.request.started: has no unit",
    ),
    "unknown emitter": (
        "model/metrics-bridge.yaml",
        "emitted_by: collector",
        "emitted_by: nobody",
        "metrics-bridge.yaml: specdecode.bridge.rounds: is emitted by the unknown nobody",
    ),
    "unknown instrument": (
        "model/metrics.yaml",
        STARTED,
        STARTED.replace("counter", "meter"),
        "metrics.yaml: specdecode.request.started: has the unknown instrument meter",
    ),
    "metric without value type": (
        "model/metrics.yaml",
        "annotations: {code_generation: {metric_value_type: int}}",
        "annotations: {}",
        "metrics.yaml: specdecode.request.started: has no value type",
    ),
    "histogram without buckets": (
        "model/metrics.yaml",
        ", specdecode: {buckets: time_per_token}",
        "",
        "metrics.yaml: specdecode.round.duration: must have buckets if and only if it is a histogram",
    ),
    "unknown buckets": (
        "model/metrics.yaml",
        "{buckets: time_per_token}",
        "{buckets: fine}",
        "metrics.yaml: specdecode.round.duration: names the unknown buckets fine",
    ),
    "coarse bound in a fine range": (
        "buckets.yaml",
        "list: [0.0001,",
        "list: [0.002,",
        "buckets.yaml: time_per_token: listed bounds [0.002] lie inside the fine range",
    ),
    "fine range without width": (
        "buckets.yaml",
        "{from: 0.001,",
        "{from: 0.5,",
        "buckets.yaml: time_per_token: no fine steps from 0.5 to 0.25",
    ),
    "import without labels": (
        "model/imports.yaml",
        "    - gen_ai.client.token.usage\n",
        "    - gen_ai.client.token.usage\n    - gen_ai.client.token.price\n",
        "overlay.yaml: gen_ai.client.token.price: is imported by the model but has no labels here",
    ),
    "upstream metric that is not imported": (
        "upstream.lock.yaml",
        "  gen_ai.client.token.usage:\n",
        "  gen_ai.client.token.uses:\n",
        "overlay.yaml: gen_ai.client.token.usage: is not in upstream.lock.yaml",
    ),
    "attribute that an upstream event lacks": (
        "overlay.yaml",
        "      gen_ai.request.seed: recommended\n",
        "      gen_ai.token.type: recommended\n",
        "overlay.yaml: gen_ai.client.inference.operation.details: has gen_ai.token.type, which the upstream event has",
    ),
    "span told by what it may lack": (
        "model/spans.yaml",
        "told_by: specdecode.mode\n",
        "told_by: specdecode.hazard.ids\n",
        "spans: span.specdecode.generation: is told by specdecode.hazard.ids, which it does not require",
    ),
    "span named after what it lacks": (
        "model/spans.yaml",
        'span_name: "{gen_ai.operation.name} {gen_ai.request.model}"',
        'span_name: "{gen_ai.operation.name} {specdecode.batch.size}"',
        "spans: span.specdecode.generation: has specdecode.batch.size in its name but not among its attributes",
    ),
    "span without a name": (
        "model/spans.yaml",
        "        span_name:",
        "        title:",
        "spans.yaml: span.specdecode.generation: has no annotation span_name",
    ),
    "unreadable condition": (
        "model/spans.yaml",
        "{attribute: specdecode.method, equals: prompt_lookup}",
        "{attribute: specdecode.method, unlike: prompt_lookup}",
        "span.specdecode.generation: specdecode.draft.max_tokens: has the unreadable condition",
    ),
    "condition on what the span lacks": (
        "model/spans.yaml",
        "{differ: [specdecode.mode, specdecode.requested_mode]}",
        "{differ: [specdecode.mode, specdecode.batch.size]}",
        "specdecode.fallback.reason: has a condition on specdecode.batch.size, which span.specdecode.generation has",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_registry_is_refused(
    registry_copy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[str, str, str], None],
    case: str,
) -> None:
    """The generator exits with 1, names file and id, and writes nothing."""
    file, old, new, complaint = BROKEN[case]
    change(file, old, new)

    assert generate.main([], root=registry_copy, target=tmp_path) == 1
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "docs").exists()
