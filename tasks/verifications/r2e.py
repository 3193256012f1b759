"""R2E-Gym: every test's status is expected; the image holds the tests in /r2e_tests.

Columns and rules are those of the public reader R2E-Gym/R2E-Gym (agenthub/runtime/docker.py):
docker_image, commit_hash, expected_output_json, modified_files. The tests take at most 300 s there.
"""

from __future__ import annotations

import re
from typing import Any

from tasks.verifications.columns import (
    Options,
    Row,
    VerificationDraft,
    common_settings,
    id_of,
    image_of,
    text_of,
)
from toolwright.reading.task_rows.data import data_in
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.rows import first, holds

ID = ("commit_hash", "docker_image")
_SECONDS = 300.0
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_COMMAND = """\
for d in /r2e_tests /root/r2e_tests; do
if [ -d $d ]; then rm -rf r2e_tests && cp -r $d r2e_tests && break; fi; done
for s in run_tests.sh /run_tests.sh /root/run_tests.sh; do
if [ -f $s ]; then exec bash $s; fi; done
echo 'the image has no run_tests.sh'; exit 1
"""
_HIDDEN = (
    *("/r2e_tests", "/root/r2e_tests", "r2e_tests"),
    *("run_tests.sh", "/run_tests.sh", "/root/run_tests.sh"),
    *("expected_test_output.json", "execution_result.json", "syn_issue.json"),
    *("parsed_commit.json", "modified_files.json", "modified_entities.json"),
)


def r2e(row: Row, options: Options, id: str = "") -> VerificationDraft:
    """id: in place of the row's own. Raises RowRefused."""
    id = id or id_of(row, ID)
    image = text_of(row, "docker_image")
    tag = image.rpartition(":")[2]
    return VerificationDraft(
        id=id,
        settings={
            "image": image_of(options, image, "", id=id, image=image, tag=tag),
            "command": _COMMAND,
            "report": "r2e",
            "seconds": options.seconds or _SECONDS,
            **common_settings(_gold(row), _HIDDEN),
            "expected": _expected(row),
        },
    )


def _expected(row: Row) -> dict[str, str]:
    """Names without colours, and without what the set's reader cuts off at " - "."""
    given = first(row, ("expected_output_json",))
    try:
        expected = data_in(given) if isinstance(given, str) else given
    except ValueError:
        expected = None
    if not isinstance(expected, dict) or not expected:
        raise RowRefused("no_expected_output", "an expected_output_json that is no object of tests")
    if not all(isinstance(status, str) for status in expected.values()):
        raise RowRefused("no_expected_output", "an expected_output_json without statuses")
    return {_COLOUR.sub("", test).partition(" - ")[0]: expected[test] for test in sorted(expected)}


def _gold(row: Row) -> list[str]:
    found: Any = first(row, ("modified_files",))
    if isinstance(found, str) and holds(found):
        try:
            found = data_in(found)
        except ValueError:
            found = None
    found = found.tolist() if hasattr(found, "tolist") else found
    return [str(path) for path in found] if isinstance(found, list | tuple) else []
