from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("msgspec", reason="needs the [acceptance] extra")

from otel_specdecode.acceptance.engines.interface import Models
from otel_specdecode.acceptance.errors import AcceptanceError
from otel_specdecode.acceptance.frozen import conditions, differences, frozen_manifest
from otel_specdecode.acceptance.records import Arm, HostSample
from otel_specdecode.host.machine import this_machine
from otel_specdecode.identity.manifest import Pair
from otel_specdecode.identity.models import LoadedModel, ModelIdentity

TARGET = ModelIdentity(name="target", fingerprint="a" * 64, quantization="4 bits, group 64")
DRAFT = ModelIdentity(name="draft", fingerprint="b" * 64)
ARMS = (Arm(0), Arm(2), Arm(4), Arm(4, temperature=0.7))
MODELS = Models("target", {"": "draft"}, {"n_ctx": 512}, seed=3, stop=("</a>",))


class Session:
    """Loaded models of which only what they are is asked."""

    def __init__(self, target: ModelIdentity = TARGET, draft: ModelIdentity = DRAFT) -> None:
        self.target, self.draft = LoadedModel(target), LoadedModel(draft)

    def pair(self, arm: Arm) -> Pair:
        return (
            Pair("mlx", "draft_model", self.target, self.draft) if arm.speculative else Pair("mlx", "none", self.target)
        )


def frozen(session: Session | None = None, models: Models = MODELS, prompts: str = "p", arms=ARMS) -> dict[str, object]:
    return frozen_manifest(session or Session(), arms, models, this_machine(), prompts)  # type: ignore[arg-type]


def test_it_tells_what_runs_and_where() -> None:
    document = frozen()

    assert document["target"]["fingerprint"] == "a" * 64
    assert document["drafts"]["draft"]["model"]["fingerprint"] == "b" * 64
    assert document["options"] == {"n_ctx": 512}
    assert document["stop"] == ["</a>"]
    assert document["sampling"] == {"seed": 3}
    assert document["machine"]["profile"] == this_machine().profile
    assert len(str(document["id"])) == 16


def test_the_same_has_the_same_id_whatever_it_is_called_and_however_long_the_drafts() -> None:
    renamed = Session(replace(TARGET, name="copy", content_sha256="c" * 64))

    assert frozen(renamed)["id"] == frozen()["id"] == frozen(arms=ARMS[:2])["id"]
    assert differences(frozen(renamed), frozen()) == []


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"session": Session(replace(TARGET, fingerprint="d" * 64))}, "target.fingerprint: aaa"),
        ({"session": Session(draft=replace(DRAFT, fingerprint="d" * 64))}, "drafts.draft.model.fingerprint: bbb"),
        (
            {"session": Session(replace(TARGET, quantization=None))},
            "target.quantization: 4 bits, group 64, and nothing",
        ),
        ({"models": replace(MODELS, options={"n_ctx": 1024})}, "options.n_ctx: 512, and 1024"),
        ({"models": replace(MODELS, stop=())}, "stop[0]: </a>, and nothing"),
        ({"models": replace(MODELS, seed=4)}, "sampling.seed: 3, and 4"),
        ({"prompts": "q"}, "prompts: p, and q"),
        ({"arms": (Arm(0),)}, "drafts.draft."),
    ],
)
def test_what_differs_has_another_id_and_is_named(other: dict[str, object], told: str) -> None:
    one, two = frozen(), frozen(**other)  # type: ignore[arg-type]

    assert one["id"] != two["id"]
    assert any(each.startswith(told) for each in differences(one, two)), differences(one, two)


def test_a_model_that_nobody_could_tell_later_is_refused() -> None:
    with pytest.raises(AcceptanceError, match="cannot be read, so that nobody could tell later what ran"):
        frozen(Session(replace(TARGET, fingerprint=None)))


def test_conditions_stand_apart_with_what_the_user_noted() -> None:
    sample = HostSample(1.0, 1.0, power_mode="low", power_source="battery", thermal_state="fair")
    noted = conditions(sample, {"ambient": "21 C", "fan": ""})

    assert noted["power_mode"] == "low"
    assert noted["notes"] == {"ambient": "21 C"}
    assert noted["id"] != conditions(None, {})["id"]
    assert conditions(None, {})["power_source"] == "unknown"
