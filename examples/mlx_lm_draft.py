"""Ask the same twice, without and with a draft: two spans with the same fields, told apart by `specdecode.mode`.

All that differs from a program without telemetry is the import of `load` and `stream_generate`, and one call where the
program sets up no OpenTelemetry SDK of its own. Arguments: the folders or repositories of target and draft; without
them, the tiny pair that comes with the package. Where spans go is said by the OTEL_* variables;
OTEL_TRACES_EXPORTER=console prints them.
"""

from __future__ import annotations

import sys

import otel_specdecode
from otel_specdecode.mlx_lm import load, stream_generate

otel_specdecode.configure(service_name="mlx-lm-draft")

names = sys.argv[1:]
if not names:
    from otel_specdecode.tiny_pair import model_path

    names = [str(model_path("target")), str(model_path("draft-kd"))]

model, tokenizer = load(names[0])
draft_model, _ = load(names[1])
question = [{"role": "user", "content": "Count from 7 to 22."}]
prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)

for draft in ({}, {"draft_model": draft_model, "num_draft_tokens": 4}):
    for response in stream_generate(model, tokenizer, prompt, max_tokens=64, **draft):
        print(response.text, end="", flush=True)
    print()
