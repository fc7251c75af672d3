"""Take the first sentence of a stream and close it: its span ends there and then, with finish reason `closed`.

Arguments: a GGUF file; without one, the tiny model that comes with the package (its conversion needs the packages gguf
and safetensors). Where spans go is said by the OTEL_* variables; OTEL_TRACES_EXPORTER=console prints them.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path

import otel_specdecode
from otel_specdecode.llama_cpp import Llama

otel_specdecode.configure(service_name="llama-cpp-stream")

with tempfile.TemporaryDirectory() as folder:
    if sys.argv[1:]:
        target = sys.argv[1]
    else:
        from otel_specdecode.tiny_pair import model_path
        from otel_specdecode.tiny_pair.gguf import convert

        target = str(convert(model_path("target"), Path(folder) / "target.gguf"))
    llama = Llama(target, n_ctx=1024, verbose=False)
    question = [{"role": "user", "content": "Tell me a story about a fox."}]
    with closing(llama.create_chat_completion(question, stream=True, temperature=0)) as chunks:
        for chunk in chunks:
            text = chunk["choices"][0]["delta"].get("content", "")
            print(text, end="")
            if "." in text:
                break
    print()
    llama.close()
