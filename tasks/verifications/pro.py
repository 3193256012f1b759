"""SWE-bench Pro, and rows in its form: a script runs the tests, a second one reads their output.

Columns and rules are those of the public reader scaleapi/SWE-bench_Pro-os (swe_bench_pro_eval.py):
instance_id, repo, before_repo_set_cmd, selected_test_files_to_run, fail_to_pass, pass_to_pass,
dockerhub_tag, and run_scripts/ID/run_script.sh and parser.py. The last line of before_repo_set_cmd
takes the tests from the image's own history, which a policy's box therefore does not have. The
repository is in /app, and the tests take at most an hour.
"""

from __future__ import annotations

import shlex
from itertools import chain
from pathlib import Path

from tasks.verifications.columns import (
    Options,
    Row,
    VerificationDraft,
    changed_by,
    common_settings,
    id_of,
    image_of,
    tests_of,
    text_of,
)
from toolwright.reading.task_rows.refusal import RowRefused

PRO_IMAGE = "jefzda/sweap-images:{tag}"
_SECONDS = 3600.0
_LONGEST_TAG = 128
_FOLDER = ".toolwright"
_OTHER_RUNNERS = (
    *("jest.config.*", "vitest.config.*", "karma.conf.*", ".mocharc.*", "playwright.config.*"),
)
_COMMAND = """\
{before}
parser=$(cat {folder}/parser.py)
bash {folder}/run_script.sh {files} > {folder}/stdout.log 2> {folder}/stderr.log
$(command -v python || command -v python3) -c "$parser" {folder}/stdout.log {folder}/stderr.log \
{folder}/output.json > /dev/null 2>&1
printf '>>>>> results\\n'; cat {folder}/output.json
"""


def pro(row: Row, options: Options) -> VerificationDraft:
    """Raises RowRefused."""
    id = id_of(row, ("instance_id",))
    if options.scripts is None:
        raise RowRefused("no_scripts", "no run_scripts: name their folder with --scripts")
    scripts = options.scripts / "run_scripts" / id
    return by_scripts(
        row, options, PRO_IMAGE, _script(scripts / "run_script.sh"), _script(scripts / "parser.py")
    )


def by_scripts(row: Row, options: Options, image: str, run: str, parser: str) -> VerificationDraft:
    """image: the rule of a row that names none; "" without a rule. Raises RowRefused."""
    id = id_of(row, ("instance_id",))
    fail = tests_of(row, "fail_to_pass_select", "fail_to_pass", "FAIL_TO_PASS")
    succeed = tests_of(row, "pass_to_pass_select", "pass_to_pass", "PASS_TO_PASS")
    if not fail:
        raise RowRefused("no_tests", "an empty fail_to_pass")
    named = text_of(row, "image_name", "docker_image")
    before = text_of(row, "before_repo_set_cmd").strip().rpartition("\n")[2]
    files = ",".join(tests_of(row, "selected_test_files_to_run"))
    gold = chain.from_iterable(changed_by(text_of(row, "patch")))
    return VerificationDraft(
        id=id,
        settings={
            "image": image_of(options, named, image, id=id, tag=_tag(row, id)),
            "command": _COMMAND.format(before=before, files=shlex.quote(files), folder=_FOLDER),
            "report": "results",
            "seconds": options.seconds or _SECONDS,
            **common_settings(gold, (), _OTHER_RUNNERS),
            "fail_to_pass": fail,
            "pass_to_pass": succeed,
        },
        files={f"{_FOLDER}/run_script.sh": run, f"{_FOLDER}/parser.py": parser},
    )


def _script(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RowRefused("no_scripts", f"{file} cannot be read ({error})") from error


def _tag(row: Row, id: str) -> str:
    """The row's own, or the one that the set's reader makes of id and repository."""
    if given := text_of(row, "dockerhub_tag"):
        return given
    owner, _, name = text_of(row, "repo").lower().partition("/")
    rest = id.removeprefix("instance_")
    if name == "element-web" and not rest.endswith("ec0f940ef0e8e3b61078f145f34dc40d1938e6c5-vnan"):
        name, rest = "element", rest.removesuffix("-vnan")
    elif name != "element-web":
        rest = rest.removesuffix("-vnan")
    return f"{owner}.{name}-{rest}"[:_LONGEST_TAG]
