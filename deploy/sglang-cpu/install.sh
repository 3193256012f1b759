#!/usr/bin/env bash
# Completes the sampler's environment after its pins are installed: install.sh VENV SHIMS
#
# One .pth file puts the folder SHIMS (shims/, or a copy of it) on the path of every Python that runs
# in the environment (the server's children are fresh interpreters) and imports those that act at its
# start. Then the server's own modules are imported once: proof that they import, and bytecode for a
# quick start. Runs again without harm.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$1/bin/python
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\nimport die_with_server, torchvision_schemas\n' "$2" >"$site/toolwright_sampler.pth"

SGLANG_USE_CPU_ENGINE=1 OMP_NUM_THREADS=1 "$python" "$here/../setup/warm.py" \
    sglang.launch_server sglang.srt.entrypoints.http_server \
    sglang.srt.managers.scheduler sglang.srt.managers.detokenizer_manager
