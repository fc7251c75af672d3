"""Nothing of whoever runs the program, and of where, is in what is emitted: on the real engines, in a made-up home."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.engines.both import Engine
from tests.programs import run_program

SECRETS = {
    "home": "zebra-home",
    "user": "wombat-user",
    "folder": "ocelot-folder",
    "link": "gannet-link",
    "adapter": "marmot-adapter",
    "declaration": "ferret-declaration",
    "prompt": "plover",
    "host": "heron-host",
    "error": "lemur-error",
}

PROGRAM = """
    import json, logging, os, platform, socket, sys
    from pathlib import Path

    home, host = Path.home(), "heron-host"
    os.chdir(home)
    uname = os.uname()
    os.uname = lambda: os.uname_result((uname.sysname, host, *uname[2:]))
    socket.gethostname = platform.node = lambda: host

    import otel_specdecode
    from otel_specdecode.telemetry.resource import MachineResourceDetector
    from otel_specdecode.testing import capture

    logged = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage() + (handler.format(record)))
    logging.getLogger("otel_specdecode").addHandler(handler)

    with capture() as telemetry:
        {calls}
        spans = [span.to_json() for span in telemetry.spans()]
        metrics = telemetry.metrics_data().to_json()
        held = [(each.log_record, getattr(each, "resource", None)) for each in telemetry.logs()]
        # Older SDKs have the resource at the record.
        records = [(record, (resource or record.resource).attributes) for record, resource in held]
    logs = [repr((each.event_name, each.body, dict(each.attributes), dict(of))) for each, of in records]
    resource = repr(dict(MachineResourceDetector().detect().attributes))
    emitted = "\\n".join([*spans, metrics, *logs, resource, *logged])
    secrets = json.loads(sys.argv[1])
    print(len(spans), len(records), {{what for what, secret in secrets.items() if secret in emitted}})
    for parts in (home.parts, Path(sys.argv[2]).parts):
        assert not [part for part in parts if len(part) > 3 and part in emitted], parts
"""
CALLS = {
    "mlx_lm": """
        import shutil, mlx_lm
        import mlx.core as mx
        from otel_specdecode.tiny_pair.cycle import build

        build(home / "ocelot-folder")
        (home / "gannet-link").symlink_to(home / "ocelot-folder")
        adapter = home / "marmot-adapter"
        adapter.mkdir()
        lora = {"rank": 2, "scale": 1.0, "dropout": 0.0}
        config = {"fine_tune_type": "lora", "num_layers": 1, "lora_parameters": lora}
        (adapter / "adapter_config.json").write_text(json.dumps(config))
        mx.save_safetensors(str(adapter / "adapters.safetensors"), {})
        try:
            mlx_lm.load(str(home / "ocelot-folder" / "nothing"))
        except Exception:
            pass
        for location in (home / "ocelot-folder" / "target", "ocelot-folder/target", home / "gannet-link" / "target"):
            model, tokenizer = mlx_lm.load(str(location), adapter_path=str(adapter))
            draft, _ = mlx_lm.load("ocelot-folder/draft")
            for options in ({}, {"draft_model": draft}):
                list(mlx_lm.stream_generate(model, tokenizer, "plover plover", max_tokens=4, **options))
        mlx_lm.batch_generate(model, tokenizer, [[301], [302]], max_tokens=3)
        running = mlx_lm.stream_generate(model, tokenizer, "plover", max_tokens=9)
        next(running)
        try:
            running.throw(OSError(2, "lemur-error", str(home / "ocelot-folder")))
        except OSError:
            pass
    """,
    "llama_cpp": """
        import llama_cpp
        from otel_specdecode.llama_cpp import ModelDraft
        from otel_specdecode.tiny_pair.cycle import build
        from otel_specdecode.tiny_pair.gguf import convert

        truth = build(home / "ocelot-folder")
        target = convert(truth.target, home / "ocelot-folder" / "target.gguf", "f32")
        draft = convert(truth.draft, home / "ocelot-folder" / "draft.gguf", "f32")
        (home / "gannet-link").symlink_to(home / "ocelot-folder")
        options = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
        try:
            llama_cpp.Llama(str(home / "ocelot-folder" / "nothing.gguf"), **options)
        except ValueError:
            pass
        for location in (target, "ocelot-folder/target.gguf", home / "gannet-link" / "target.gguf"):
            drafting = ModelDraft("ocelot-folder/draft.gguf", str(location), **options)
            for second in (None, drafting):
                llama = llama_cpp.Llama(str(location), draft_model=second, logits_all=True, **options)
                llama.create_completion("plover plover", max_tokens=4)
                llama.create_chat_completion([{"role": "user", "content": "plover"}], max_tokens=4)
        running = llama.create_completion("plover", max_tokens=9, stream=True)
        next(running)
        try:
            running.throw(OSError(2, "lemur-error", str(home / "ocelot-folder")))
        except OSError:
            pass
    """,
}


@pytest.mark.parametrize("declares", ["well", "badly"])
def test_no_folder_home_user_host_prompt_or_error_is_in_what_is_emitted(
    declares: str, engine: Engine, tmp_path: Path
) -> None:
    """Nor in what the library logs; whatever folders lie on the way to the models, and if the declaration is bad."""
    home = tmp_path / "zebra-home" / "wombat-user"
    home.mkdir(parents=True)
    declaration = home / "ferret-declaration" / "file.toml"
    declaration.parent.mkdir()
    (declaration.parent / "gates.json").write_text("{}")
    declaration.write_text('gate_policy = "gates.json"\n' if declares == "well" else 'gate_policy = "missing.json"\n')
    calls = textwrap.indent(textwrap.dedent(CALLS[engine.name]).strip(), " " * 8).lstrip()
    printed = run_program(
        PROGRAM.format(calls=calls),
        json.dumps(SECRETS),
        str(declaration),
        HOME=str(home),
        USER="wombat-user",
        LOGNAME="wombat-user",
        OTEL_SPECDECODE_DECLARATION=str(declaration),
    )
    spans, records, found = printed.strip().split(" ", 2)
    assert int(spans) >= 7
    assert int(records) >= 2
    assert found == "set()"
