"""Ask the same twice, without and with a draft: two spans with the same fields, told apart by `specdecode.mode`.

Arguments: the GGUF files of target and draft; without them, the tiny pair that comes with the package (its conversion
needs the packages gguf and safetensors). Where spans go is said by the OTEL_* variables; OTEL_TRACES_EXPORTER=console
prints them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import otel_specdecode
from otel_specdecode.llama_cpp import Llama, ModelDraft

otel_specdecode.configure(service_name="llama-cpp-draft")

with tempfile.TemporaryDirectory() as folder:
    files = sys.argv[1:]
    if not files:
        from otel_specdecode.tiny_pair import model_path
        from otel_specdecode.tiny_pair.gguf import convert

        tiny = ("target", "draft-kd")
        files = [str(convert(model_path(model), Path(folder) / f"{model}.gguf")) for model in tiny]

    # The draft needs a context as long as the target's, and the target logits_all, or it fails beyond n_batch tokens.
    llama = Llama(files[0], n_ctx=1024, logits_all=True, verbose=False)
    question = [{"role": "user", "content": "Count from 7 to 22."}]
    with ModelDraft(files[1], llama, num_pred_tokens=4) as model_draft:
        for draft in (None, model_draft):
            llama.draft_model = draft
            llama.reset()  # the second must not find the first one's prompt evaluated
            answer = llama.create_chat_completion(question, max_tokens=64, temperature=0)
            print(answer["choices"][0]["message"]["content"])
    llama.close()
