#!/bin/sh
# A nightly acceptance run on a machine that does nothing else: sweep, soak, gates, report; results in a folder a night.
# The exit status is that of the gates: 0 accepted, 1 rejected, 3 invalid. TARGET and DRAFT are folders, GGUF files or
# cached hub ids; VENV is an environment with otel-specdecode[mlx,acceptance]; POLICY is what `gates init` printed.
# EXTRA has more options for sweep and soak, such as "--prompts mine.jsonl --mix checked".
set -eu

: "${TARGET:?name the target}" "${DRAFT:?name the draft}" "${VENV:?name the environment}" "${POLICY:?name the gates}"
: "${RUNS:=$HOME/specdecode-runs}" "${PROFILE:=$(hostname -s)}" "${MINUTES:=30}" "${WARM_UP:=180}" "${REPEATS:=3}"
: "${DRAFT_TOKENS:=4}" # what is soaked and judged, whichever length is the fastest that night
PATH="$VENV/bin:$PATH"

run_id="nightly-$(date -u +%Y%m%dT%H%M%SZ)"
night="$RUNS/$run_id"
mkdir -p "$night"

# caffeinate keeps a Mac awake, also with its lid open and nobody there; elsewhere the command runs by itself.
awake() { if command -v caffeinate >/dev/null; then caffeinate -dims "$@"; else "$@"; fi; }

# Status 3: its time was over. The gates say what is missing then.
awake otel-specdecode sweep --model "$TARGET" --draft "$DRAFT" --run-id "$run_id" --out "$night/sweep" \
  --repeats "$REPEATS" --warm-up "$WARM_UP" --max-hours 4 --note "placement=$PROFILE" ${EXTRA:-} || [ $? -eq 3 ]
awake otel-specdecode soak --model "$TARGET" --draft "$DRAFT" --run-id "$run_id-soak" --out "$night/soak" \
  --draft-tokens "$DRAFT_TOKENS" --minutes "$MINUTES" --warm-up "$WARM_UP" --note "placement=$PROFILE" ${EXTRA:-}

otel-specdecode report "$night/sweep" --soak "$night/soak" --policy "$POLICY" --arm "k=$DRAFT_TOKENS" \
  -o "$night/report.html" --json "$night/report.json" --markdown "$night/report.md"
exec otel-specdecode gate "$night/sweep" --soak "$night/soak" --policy "$POLICY" --arm "k=$DRAFT_TOKENS" \
  --json "$night/verdict.json"
