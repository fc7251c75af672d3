#!/usr/bin/env bash
# Start mlx_lm.server with not a line of code changed, ask it as a client that has a trace and a tenant, and stop it.
#
# Arguments: what mlx_lm.server takes; without them, the tiny pair that comes with the package. PORT is the port, 8080
# if it is not set. Where spans go is said by the OTEL_* variables; OTEL_TRACES_EXPORTER=console prints them.
set -euo pipefail

port=${PORT:-8080}
url=http://127.0.0.1:$port
if [ $# -eq 0 ]; then
  models=$(python -c 'from otel_specdecode.tiny_pair import model_path; print(model_path("target").parent)')
  set -- --model "$models/target" --draft-model "$models/draft-kd" --num-draft-tokens 4
fi

if curl --silent --output /dev/null "$url"; then
  echo "something else answers on port $port; set PORT to a free one" >&2
  exit 1
fi

export OTEL_SERVICE_NAME=${OTEL_SERVICE_NAME:-mlx-lm-server}
opentelemetry-instrument mlx_lm.server --port "$port" "$@" &
server=$!
# SIGTERM has the server export what it has recorded; wait, or the script ends before it has.
trap 'kill "$server" 2>/dev/null; wait "$server" || true' EXIT

until curl --silent --output /dev/null "$url/health"; do
  kill -0 "$server" # ends the script if the server has ended
  sleep 0.2
done

random() { od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }
trace=$(random 16)
curl --silent --show-error --fail "$url/v1/chat/completions" \
  --header "Content-Type: application/json" \
  --header "traceparent: 00-$trace-$(random 8)-01" \
  --header "baggage: specdecode.tenant.id=acme" \
  --data '{"messages": [{"role": "user", "content": "Count from 7 to 22."}], "max_tokens": 64}'
printf '\ntrace %s\n' "$trace"
