"""Train a target or a draft on the fables corpus and write its folder."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from ..folders import llama_config, read_config, read_weights, write_json, write_model, write_tokenizer
from .corpus import fables
from .loop import Chats, evaluate, train
from .model import NumpyLlama
from .tokenizer import render, train_tokenizer


class Preset(NamedTuple):
    """Sizes and schedule of one of the shipped models. Head size is 64, MLX's default group for a quantised cache."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    steps: int
    rate: float


PRESETS = {
    "target": Preset(width=128, layers=4, heads=2, kv_heads=1, hidden=320, steps=1800, rate=3e-3),
    "draft": Preset(width=64, layers=1, heads=1, kv_heads=1, hidden=128, steps=900, rate=4e-3),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    options = _parser().parse_args(arguments)
    preset = PRESETS[options.preset]
    steps, rate = options.steps or preset.steps, options.rate or preset.rate
    texts = [render(chat) for chat in fables(options.chats)]
    tokenizer = (
        Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
        if options.tokenizer
        else train_tokenizer(texts, options.vocabulary)
    )
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    held_out = max(32, len(ids) // 50)
    config = llama_config(
        vocabulary=tokenizer.get_vocab_size(),
        width=preset.width,
        layers=preset.layers,
        heads=preset.heads,
        kv_heads=preset.kv_heads,
        hidden=preset.hidden,
    )
    model = NumpyLlama(config, seed=options.seed)
    teacher = (
        NumpyLlama(read_config(options.teacher), weights=read_weights(options.teacher)) if options.teacher else None
    )
    began = time.perf_counter()
    train_loss = train(
        model,
        Chats.of(ids[held_out:]),
        steps=steps,
        rate=rate,
        batch=options.batch,
        length=options.length,
        seed=options.seed,
        teacher=teacher,
        progress=_report,
    )
    seconds = time.perf_counter() - began
    value_loss, top1 = evaluate(model, Chats.of(ids[:held_out]), length=options.length)
    write_model(options.out, config, model.parameters, dtype=options.dtype)
    write_tokenizer(options.out, tokenizer, context=config["max_position_embeddings"])
    facts = {
        "corpus": "fables",
        "preset": options.preset,
        "params": model.flat.size,
        "steps": steps,
        "seconds": round(seconds, 1),
        "teacher": options.teacher.name if options.teacher else None,
        "tokens_per_s": round(steps * options.batch * options.length / seconds),
        "train_loss": round(train_loss, 4),
        "val_loss": round(value_loss, 4),
        "val_top1": round(top1, 4),
    }
    write_json(options.out / "train.json", facts)
    print(facts)  # noqa: T201  (a command)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m otel_specdecode.tiny_pair.training", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="target", help="sizes and schedule")
    parser.add_argument("--tokenizer", type=Path, help="folder whose tokenizer to use; a draft needs its target's")
    parser.add_argument("--teacher", type=Path, help="folder of a model to distil from")
    parser.add_argument("--steps", type=int, help="batches to train on; by default the preset's")
    parser.add_argument("--rate", type=float, help="peak learning rate; by default the preset's")
    parser.add_argument("--batch", type=int, default=16, help="sequences in a batch")
    parser.add_argument("--length", type=int, default=160, help="tokens in a sequence")
    parser.add_argument("--chats", type=int, default=12_000, help="size of the corpus")
    parser.add_argument("--vocabulary", type=int, default=1024, help="tokens of a newly trained tokenizer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=["float16", "float32"], default="float16", help="type of the saved weights")
    return parser


def _report(step: int, value: float) -> None:
    if step == 1 or step % 100 == 0:
        print(f"step {step}: loss {value:.3f}", flush=True)  # noqa: T201  (a command)


if __name__ == "__main__":
    main()
