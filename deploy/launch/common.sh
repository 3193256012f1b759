# shellcheck shell=bash
# What node.sh and slurm.sbatch share: to wait for samplers, and to end with the learner.

# await_samplers URL...: until each answers, for at most SAMPLER_START_S seconds (1800) or until a
# child of this shell has ended.
await_samplers() {
    local url children deadline=$((SECONDS + ${SAMPLER_START_S:-1800}))
    children=$(jobs -pr | wc -l)
    for url in "$@"; do
        until curl --silent --fail --max-time 5 --output /dev/null "$url/health"; do
            if (($(jobs -pr | wc -l) < children)); then
                echo "launch: samplers ended before $url answered" >&2
                return 1
            elif ((SECONDS > deadline)); then
                echo "launch: $url did not answer in ${SAMPLER_START_S:-1800} s" >&2
                return 1
            fi
            sleep 1
        done
    done
}

# endpoints URL...: as a TOML list.
endpoints() {
    local list
    list=$(printf '"%s", ' "$@")
    echo "[${list%, }]"
}

# end_with LEARNER TRACKER: waits for the first child to end, but for the tracker, which may. The
# learner's status is that of the run; engine or samplers that end before it end the run.
end_with() {
    local ended status=0
    wait -n -p ended || status=$?
    if [[ $ended == "$2" ]]; then
        status=0
        wait -n -p ended || status=$?
    fi
    if [[ $ended != "$1" ]]; then
        echo "launch: engine or samplers ended with status $status while the learner trained" >&2
        return 1
    fi
    return "$status"
}

# end_children: SIGTERM to each, the youngest first, and waits for all of them.
end_children() {
    local child
    for child in $(jobs -pr | tac); do
        kill "$child" 2>/dev/null || true
    done
    wait
}
