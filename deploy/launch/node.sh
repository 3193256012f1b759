#!/usr/bin/env bash
# One run on one machine with GPUs: samplers, engine, and a rank of the learner a GPU.
#
#   SAMPLER_GPUS="0 1" LEARNER_GPUS=2,3 deploy/launch/node.sh RECIPE MODEL [--set TABLE.KEY=VALUE]...
#
# From the project's folder. A second start of the same command goes on with the run. It ends with
# the learner, and with its status. samplers.sh says what SAMPLER_* and SGLANG are.
#
#   LEARNER_GPUS     the GPUs that train, with commas
#   TOOLWRIGHT       folder of `engine`, `toolwright` and `python`; .venv/bin
#   SAMPLER_START_S  longest start of the samplers; 1800
set -euo pipefail

usage="node.sh RECIPE MODEL [--set TABLE.KEY=VALUE]..."
recipe=${1:?which recipe? $usage}
model=${2:?which model? $usage}
shift 2
: "${SAMPLER_GPUS:?which GPUs sample? for example \"0 1\"}"
: "${LEARNER_GPUS:?which GPUs train? for example 2,3}"
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=deploy/launch/common.sh
source "$here/common.sh"
bin=${TOOLWRIGHT:-.venv/bin}
trap end_children EXIT
trap 'exit 143' TERM INT

"$here/samplers.sh" "$model" &
urls=()
port=${SAMPLER_PORT:-30000}
for _ in $SAMPLER_GPUS; do
    urls+=("http://127.0.0.1:$port")
    port=$((port + 1))
done
await_samplers "${urls[@]}"

settings=("$@" --set "sampler.endpoints=$(endpoints "${urls[@]}")")
CUDA_VISIBLE_DEVICES="" "$bin/engine" serve "$recipe" "${settings[@]}" &
CUDA_VISIBLE_DEVICES="" "$bin/toolwright" track "$recipe" "${settings[@]}" &
tracker=$!
commas=${LEARNER_GPUS//[^,]/}
CUDA_VISIBLE_DEVICES=$LEARNER_GPUS "$bin/python" -m learner.launch --nnodes=1 \
    --nproc-per-node="$((${#commas} + 1))" --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:0 \
    -m learner.cli run "$recipe" "${settings[@]}" &
end_with "$!" "$tracker"
