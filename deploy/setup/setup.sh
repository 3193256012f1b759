#!/usr/bin/env bash
# Makes the project's two Python environments: setup.sh [project|sampler ...]   (default: both)
#
#   project          .venv          the project itself, editable, with EXTRAS (default: all,dev)
#   sampler          .venv-sglang   the real SGLang server for this machine's CPU
#   sampler=FOLDER   FOLDER         the same without .venv: what `toolwright install-sampler` runs
#
# A stamp in each environment is the hash of everything that went into it, so a second run costs
# nothing. Packages come from where the user's pip would take them (uv_like_pip.py); uv links both
# environments' files to one cache, so torch is on the disk once.
# BASE_PYTHON=... names the interpreter; else it is the first Python 3.11 or 3.12 on PATH that runs.
# PROJECT_VENV names another folder for the project's environment. SETUP_COMMAND is what the user is told to run again.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# Not in the root: Python would take the package's modules there for its own.
cd "$here"
uv_version=0.13.8
extras=${EXTRAS:-all,dev}
project=$root/${PROJECT_VENV:-.venv}
sampler=$root/.venv-sglang
installer=$project # the environment whose Python holds pip and uv
again=${SETUP_COMMAND:-make setup}
mark=.toolwright-sampler
project_pins=$root/constraints/toolwright.txt
sampler_pins=$root/constraints/sampler-cpu.txt
torch_index=https://download.pytorch.org/whl/cpu

say() { echo "setup: $*"; }
stop() { echo "setup: $*" >&2; exit 1; }

supported() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${BASE_PYTHON:-python3.11 python3.12 python3 python}; do
        # A version manager's shim may be on PATH and not run, hence the second test.
        if command -v "$candidate" >/dev/null && supported "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    stop "Python 3.11 or 3.12 is needed, and none runs from PATH: install one (Debian 12: apt-get install python3 python3-venv) or set BASE_PYTHON=/path/to/python3.11"
}

# stamp ENVIRONMENT FILE...: the hash of what makes this environment what it is
stamp() {
    { echo "$1" "$uv_version" "$extras"; "$1/bin/python" -VV; cat "${@:2}"; } 2>/dev/null | sha256sum
}

current() {
    [ -x "$1/bin/python" ] && [ "$(cat "$1/.setup-stamp" 2>/dev/null)" = "$(stamp "$@")" ]
}

# The installer, made where it is missing. The project's environment installs both.
have_uv() {
    if [ -e "$installer/bin" ] && ! supported "$installer/bin/python"; then
        say "$installer does not run Python 3.11 or 3.12: making it again"
        find "$installer" -mindepth 1 -maxdepth 1 ! -name "$mark" -exec rm -rf {} +
    fi
    if ! "$installer/bin/python" -m pip --version >/dev/null 2>&1; then
        python=$(find_python)
        if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            "$here/system.sh" "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
        fi
        say "making $installer with $("$python" --version)"
        "$python" -m venv "$installer"
    fi
    if [ "$("$installer/bin/uv" --version 2>/dev/null | cut -d' ' -f2)" != "$uv_version" ]; then
        "$installer/bin/python" -m pip install -qq --disable-pip-version-check "uv==$uv_version"
    fi
}

uv() { "$installer/bin/python" "$here/uv_like_pip.py" "$@"; }

has_gpu() { [ -e /dev/nvidia0 ] || [ -e /dev/dxg ]; }

# want_cpu_torch REASON ARGUMENT...: stop before gigabytes of CUDA are fetched, where `pip install
# ARGUMENT...` would choose them. Only for x86-64 Linux does PyPI hold them under the plain version.
want_cpu_torch() {
    [ "$(uname -sm)" = "Linux x86_64" ] || return 0
    local plan torch
    if ! plan=$(uv pip install --dry-run "${@:2}" 2>&1); then
        echo "$plan" | tail -n 5 >&2
        stop "the pinned packages are not all to be had where pip's settings lead (uv's words stand above)"
    fi
    torch=$(sed -n 's/^ + torch==//p' <<<"$plan") # nothing when it is installed already
    case "$torch" in
        "" | *+cpu*) ;;
        *) stop "pip's settings lead to the CUDA build of torch ($torch), and $1: run \`PIP_EXTRA_INDEX_URL=$torch_index $again\`, or let PIP_FIND_LINKS name a folder with the CPU wheel" ;;
    esac
}

setup_project() {
    if current "$project" "$here/setup.sh" "$root/pyproject.toml" "$project_pins"; then return; fi
    local began=$SECONDS
    have_uv
    local what=(--python "$project/bin/python" -c "$project_pins" -e "$root[$extras]")
    if ! has_gpu; then want_cpu_torch "this machine has no GPU" "${what[@]}"; fi
    say "installing the project into ${project##*/} (extras: $extras)"
    uv pip install -q "${what[@]}"
    OMP_NUM_THREADS=1 "$project/bin/python" "$here/warm.py" torch transformers megatron.core grpc.aio pydantic
    stamp "$project" "$here/setup.sh" "$root/pyproject.toml" "$project_pins" >"$project/.setup-stamp"
    say "${project##*/} is ready ($((SECONDS - began)) s)"
}

# claim FOLDER: what is made again is removed first, so it must be a folder that we made.
claim() {
    if [ -n "$(ls -A "$1" 2>/dev/null)" ] && [ ! -e "$1/$mark" ]; then
        stop "$1 holds something else: name a folder that is empty or not there yet"
    fi
    mkdir -p "$1" && touch "$1/$mark" || stop "$1 cannot be written: name another folder"
}

# shims_of ENVIRONMENT: a checkout's own, so that a change of them acts; else a copy inside of it, which
# stays when the package goes.
shims_of() {
    local own=$root/deploy/sglang-cpu/shims
    if [ "$installer" = "$project" ]; then
        echo "$own"
    else
        rm -rf "$1/shims"
        cp -R "$own" "$1/shims"
        echo "$1/shims"
    fi
}

setup_sampler() {
    local install=$root/deploy/sglang-cpu/install.sh
    local parts=("$here/setup.sh" "$install" "$sampler_pins")
    if [ "$installer" != "$project" ]; then parts+=("$root"/deploy/sglang-cpu/shims/{,*/}*.py); fi
    if current "$sampler" "${parts[@]}"; then return; fi
    local began=$SECONDS
    have_uv
    if [ -e "$sampler" ] && ! supported "$sampler/bin/python"; then rm -rf "$sampler"; fi
    if [ ! -e "$sampler" ]; then
        say "making $sampler"
        uv venv -q --python "$installer/bin/python" "$sampler"
    fi
    # --no-deps: the pins are the whole environment (their file says why)
    local what=(--python "$sampler/bin/python" --no-deps -r "$sampler_pins")
    want_cpu_torch "the sampler computes on the CPU" "${what[@]}"
    say "installing SGLang into $sampler"
    uv pip install -q "${what[@]}"
    bash "$install" "$sampler" "$(shims_of "$sampler")"
    stamp "$sampler" "${parts[@]}" >"$sampler/.setup-stamp"
    say "$sampler is ready ($((SECONDS - began)) s)"
}

if [ $# -eq 0 ]; then set -- project sampler; fi
for part in "$@"; do
    case "$part" in
        project) setup_project ;;
        sampler) setup_sampler ;;
        sampler=?*)
            sampler=${part#sampler=}
            installer=$sampler
            claim "$sampler"
            setup_sampler
            ;;
        *) stop "there is no part named '$part': setup.sh [project|sampler|sampler=FOLDER ...]" ;;
    esac
done
