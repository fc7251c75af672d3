"""The guard, with a draft that is not worth its time: it switches speculation off by itself and writes down why.

The calls of the program stay as they are; the policy below would be a file of its own in a service, as
`otel-specdecode guard init` prints one. Arguments: the folders or repositories of target and draft; without them, the
tiny target that comes with the package, and itself with much noise as its draft. Where spans go is said by the OTEL_*
variables; OTEL_TRACES_EXPORTER=console prints them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import otel_specdecode
from otel_specdecode.guarded import start_guard
from otel_specdecode.mlx_lm import load, stream_generate
from otel_specdecode.tiny_pair import PROMPTS

POLICY = """
mode = "enforce"     # without this line it only tells what it would do

[windows]
rounds = 40          # 200 by default, which this program would hardly reach

[baseline]
share = 0.0          # no control requests: of so few, none could be spared

[audit]
folder = "audit"
"""

otel_specdecode.configure(service_name="guarded")

with tempfile.TemporaryDirectory() as folder:
    names = sys.argv[1:]
    if not names:
        from otel_specdecode.tiny_pair import model_path
        from otel_specdecode.tiny_pair.dial import with_noise

        target = model_path("target")
        names = [str(target), str(with_noise(target, Path(folder) / "draft", sigma=0.5))]

    policy = Path(folder) / "guard.toml"
    policy.write_text(POLICY, encoding="utf-8")
    guard = start_guard(policy)

    model, tokenizer = load(names[0])
    draft_model, _ = load(names[1])
    for text in PROMPTS:
        question = [{"role": "user", "content": text}]
        prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
        answer = stream_generate(model, tokenizer, prompt, max_tokens=96, draft_model=draft_model, num_draft_tokens=4)
        drafted = [response.from_draft for response in answer]
        print(f"{len(drafted)} tokens, {sum(drafted)} of them from the draft: {text}")

    guard.close()
    command = Path(sys.executable).with_name("otel-specdecode")
    subprocess.run([command, "guard", "log", Path(folder) / "audit"], check=True)
