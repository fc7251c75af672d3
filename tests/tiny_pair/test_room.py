"""The room itself: what it ships, what it imports, what it says when asked for the wrong thing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import otel_specdecode.tiny_pair as room
from otel_specdecode.tiny_pair import MODEL_NAMES, model_path

ROOM = Path(room.__file__).parent
SHIPPED = [path for path in sorted(ROOM.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def test_each_name_leads_to_a_complete_folder() -> None:
    """Every shipped model has all the files that `mlx_lm.load` reads."""
    for name in MODEL_NAMES:
        files = {path.name for path in model_path(name).iterdir()}
        assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= files


def test_an_unknown_name_is_refused_with_the_valid_ones() -> None:
    """The message of a wrong name lists the right ones."""
    with pytest.raises(ValueError, match="target, draft, draft-kd, draft-weak"):
        model_path("teacher")  # type: ignore[arg-type]


def test_importing_the_room_imports_no_engine_and_no_numpy() -> None:
    """The public surface costs a plain Python import."""
    check = (
        "import sys, otel_specdecode.tiny_pair; "
        "print(sorted({'numpy', 'mlx', 'mlx_lm', 'llama_cpp', 'tokenizers', 'safetensors'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOM.parent.parent)}
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, env=environment, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOM)))
def test_no_shipped_file_names_a_machine(path: Path) -> None:
    """No file holds an absolute path of the machine it was made on, nor a home folder."""
    content = path.read_bytes().decode("latin-1")
    assert not re.search(r"/(home|Users|root|tmp|work|var|mnt)/[\w.-]", content)


def test_the_models_share_one_tokenizer() -> None:
    """A draft proposes ids of the target's vocabulary."""
    assert len({(model_path(name) / "tokenizer.json").read_bytes() for name in MODEL_NAMES}) == 1


def test_the_whole_room_stays_small() -> None:
    """The wheel carries at most 3 MB for it."""
    assert sum(path.stat().st_size for path in SHIPPED) < 3_000_000


def test_the_card_gives_the_sizes_that_the_folders_have() -> None:
    """Parameter counts in the model card are those of the training records."""
    card = (ROOM / "models" / "MODEL_CARD.md").read_text(encoding="utf-8")
    for name in MODEL_NAMES:
        record = json.loads((model_path(name) / "train.json").read_text(encoding="utf-8"))
        row = next(line for line in card.splitlines() if line.startswith(f"| `{name}` |"))
        wanted = "the same" if name in {"draft-kd", "draft-weak"} else f"{record['params']:,}"
        assert wanted in row
