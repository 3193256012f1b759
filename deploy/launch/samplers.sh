#!/usr/bin/env bash
# The SGLang servers of one machine; when one ends, or on SIGTERM, all end.
#
#   deploy/launch/samplers.sh MODEL
#
#   SAMPLER_GPUS   one server a word, each with the GPUs of its word; "0 1", or "0,1 2,3"
#   SAMPLER_PORT   of the first server, the others follow; 30000
#   SAMPLER_HOST   the address that they listen on; 127.0.0.1
#   SAMPLER_FLAGS  more flags of SGLang, such as "--context-length 32768"
#   SGLANG         the Python of SGLang's environment; .venv-sglang/bin/python
set -euo pipefail

model=${1:?which model? samplers.sh MODEL}
: "${SAMPLER_GPUS:?which GPUs? one server a word, for example \"0 1 2,3\"}"
read -ra flags <<<"${SAMPLER_FLAGS:-}"
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; wait' EXIT
trap 'exit 143' TERM INT

port=${SAMPLER_PORT:-30000}
for gpus in $SAMPLER_GPUS; do
    commas=${gpus//[^,]/}
    # /health must not wait for a generation: a publish pauses the server.
    CUDA_VISIBLE_DEVICES=$gpus SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0 \
        "${SGLANG:-.venv-sglang/bin/python}" -m sglang.launch_server --model-path "$model" \
        --host "${SAMPLER_HOST:-127.0.0.1}" --port "$port" --tp-size "$((${#commas} + 1))" \
        --skip-tokenizer-init --incremental-streaming-output ${flags[@]+"${flags[@]}"} &
    servers+=("$!")
    port=$((port + 1))
done
status=0
wait -n || status=$?
echo "samplers.sh: a server ended with status $status" >&2
exit 1
