"""Answer every prompt of a file; one that fails leaves the others alone, and all telemetry is out before the job ends.

The exit status is 0 if every prompt was answered, 1 if not. SIGTERM ends the job after the prompt it is at, with 143.
Arguments: a file with a prompt a line, and a GGUF file; without them, the prompts and the tiny model that come with the
package (its conversion needs the packages gguf and safetensors). Where telemetry goes is said by the OTEL_* variables;
OTEL_TRACES_EXPORTER=console prints spans, and OTEL_SPECDECODE_RUN_ID names the run on each.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

import otel_specdecode
from otel_specdecode.llama_cpp import Llama


def answer_all(llama: Llama, prompts: Iterable[str], stop: threading.Event) -> int:
    """Print an answer a line; return the exit status."""
    status = 0
    for number, prompt in enumerate(prompts, start=1):
        if stop.is_set():
            return 128 + signal.SIGTERM
        question = [{"role": "user", "content": prompt}]
        try:
            answer = llama.create_chat_completion(question, max_tokens=64, temperature=0)
        except Exception as error:
            status = 1
            # The text of the error may quote the prompt. Its span says ERROR, with the same type.
            print(f"prompt {number} failed: {type(error).__name__}", file=sys.stderr)
        else:
            text = answer["choices"][0]["message"]["content"]
            print(json.dumps({"prompt": number, "answer": text}), flush=True)
    return status


def main() -> int:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    otel_specdecode.configure(service_name="batch-job")
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1:]:
            file, target = sys.argv[1:]
            prompts = Path(file).read_text(encoding="utf-8").splitlines()
        else:
            from otel_specdecode.tiny_pair import PROMPTS, model_path
            from otel_specdecode.tiny_pair.gguf import convert

            prompts, target = list(PROMPTS), str(convert(model_path("target"), Path(folder) / "target.gguf"))
        llama = Llama(target, n_ctx=1024, verbose=False)
        try:
            return answer_all(llama, prompts, stop)
        finally:
            llama.close()
            if not otel_specdecode.flush():
                print("some telemetry was not exported in time", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
