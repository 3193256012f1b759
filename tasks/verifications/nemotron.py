"""Rows of NVIDIA's Nemotron blends for software engineering, in the form of NeMo Gym.

    {"responses_create_params": {"metadata": {"instance_id": ..., "dataset_name": ...,
     "instance_dict": "{...}"}}, "agent_ref": {...}}

The form is that of the public reader NVIDIA-NeMo/Gym (responses_api_agents/swe_agents).
instance_dict is a row of another set, which dataset_name names: R2E-Gym, SWE-bench and its Verified
part, SWE-Gym, or nv-internal-1, which brings its scripts in the row. Rows of other harnesses are
refused.
"""

from __future__ import annotations

import re

from tasks.sets.reshaping import nemotron_row
from tasks.verifications.columns import Options, Row, VerificationDraft, id_of, text_of
from tasks.verifications.pro import by_scripts
from tasks.verifications.r2e import r2e
from tasks.verifications.swe_bench import SWE_BENCH_IMAGE, SWE_GYM_IMAGE, swe_bench
from toolwright.reading.task_rows.refusal import RowRefused

_R2E_IMAGE = "namanjain12/{name}_final:{tag}"
_R2E_ID = re.compile(r"[^_]+__(?P<name>[^-]+)-(?P<tag>\w+)")
_OTHER_HARNESSES = ("Multilingual", "SWE-bench-Live", "Multimodal")


def nemotron(row: Row, options: Options) -> VerificationDraft:
    """Raises RowRefused."""
    row = nemotron_row(row)
    id, name = id_of(row, ("instance_id",)), text_of(row, "dataset_name")
    if name == "nv-internal-1":
        run, parser = text_of(row, "run_script.sh"), text_of(row, "parsing_script.py")
        if not (run and parser):
            raise RowRefused("no_scripts", "no run_script.sh, or no parsing_script.py")
        return by_scripts(row, options, "", run, parser)
    if "R2E-Gym" in name:
        return r2e({"docker_image": _r2e_image(id), **row}, options, id)
    if "SWE-Gym" in name:
        return swe_bench(row, options, SWE_GYM_IMAGE)
    if "SWE-bench" in name and not any(other in name for other in _OTHER_HARNESSES):
        return swe_bench(row, options, SWE_BENCH_IMAGE)
    raise RowRefused("another_harness", f"dataset_name {name!r:.80} is not read")


def _r2e_image(id: str) -> str:
    found = _R2E_ID.fullmatch(id)
    return _R2E_IMAGE.format(name=found["name"].lower(), tag=found["tag"]) if found else ""
