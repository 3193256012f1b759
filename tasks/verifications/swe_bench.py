"""SWE-bench, its Verified and Lite parts, and SWE-Gym: a test patch, and two lists of tests.

Columns, commands and rules are those of the public harness SWE-bench/SWE-bench and of SWE-Gym's
fork of it: repo, version, instance_id, patch, test_patch, FAIL_TO_PASS, PASS_TO_PASS. The command
runs the files of the test patch. The harness installs the repository once more before the tests.
This does not: the submission's `setup.py` would run before the tests, and could change them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from tasks.verifications.columns import (
    Options,
    Row,
    VerificationDraft,
    changed_by,
    common_settings,
    id_of,
    image_of,
    names_of_id,
    tests_of,
    text_of,
)
from toolwright.reading.task_rows.refusal import RowRefused

SWE_BENCH_IMAGE = "swebench/sweb.eval.x86_64.{id_1776}:latest"
SWE_GYM_IMAGE = "xingyaoww/sweb.eval.x86_64.{id_s}:latest"
_SECONDS = 1800.0
_NO_TESTS = (
    *(".json", ".png", "csv", ".txt", ".md", ".jpg"),
    *(".jpeg", ".pkl", ".yml", ".yaml", ".toml"),
)
"""Endings of a test patch's files that are not given to the command."""
_HIDDEN = ("/run_tests.sh", "/eval.sh", "/root/eval.sh")
"""Scripts that images of this family were published with; they hold the test patch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runner:
    """How a repository's tests are run, and the format of their log."""

    command: str = "pytest -rA"
    report: str = "pytest_words"


_DJANGO = "./tests/runtests.py --verbosity 2"
_DJANGO_LANGUAGE = """\
if [ -f /etc/locale.gen ]; then
{ sed -i '/en_US.UTF-8/s/^# //g' /etc/locale.gen && locale-gen; } > /dev/null 2>&1; fi
export LANG=en_US.UTF-8 LC_ALL=en_US.UTF-8 LANGUAGE=en_US:en PYTHONIOENCODING=utf8
"""
_OLD_ASTROPY = ("0.1", "0.2", "0.3", "0.4", "1.1", "1.2", "1.3")
_ONE_PROCESS = _Runner(command="pytest -n0 -rA")
_LONG = _Runner(command="pytest -rA --tb=long")
_RUNNERS: Mapping[str, _Runner] = {
    "astropy/astropy": _Runner(report="pytest_whole"),
    "django/django": _Runner(command=_DJANGO, report="django"),
    "marshmallow-code/marshmallow": _Runner(),
    "matplotlib/matplotlib": _Runner(report="matplotlib"),
    "mwaskom/seaborn": _Runner(command="pytest --no-header -rA", report="seaborn"),
    "pallets/flask": _Runner(),
    # Not installed in place: without this the tests import the copy in site-packages.
    "psf/requests": _Runner(command="PYTHONPATH=$PWD pytest -rA", report="pytest_options"),
    "pvlib/pvlib-python": _Runner(),
    "pydata/xarray": _Runner(),
    "pydicom/pydicom": _Runner(report="pytest_options"),
    "pylint-dev/astroid": _Runner(),
    "pylint-dev/pylint": _Runner(report="pytest_options"),
    "pytest-dev/pytest": _Runner(),
    "pyvista/pyvista": _Runner(),
    "scikit-learn/scikit-learn": _Runner(report="pytest_whole"),
    "sphinx-doc/sphinx": _Runner(command="tox --current-env -epy39 -v --", report="pytest_whole"),
    "sqlfluff/sqlfluff": _Runner(),
    "sympy/sympy": _Runner(
        command="PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning' bin/test -C --verbose",
        report="sympy",
    ),
    # SWE-Gym's. mypy is not here: its tests are chosen by names, not by files.
    "Project-MONAI/MONAI": _Runner(),
    "bokeh/bokeh": _ONE_PROCESS,
    "conan-io/conan": _Runner(command="PYTHONPATH=${PYTHONPATH-}:$PWD pytest -n0 -rA"),
    "dask/dask": _Runner(command="pytest -n0 -rA --color=no"),
    "facebookresearch/hydra": _LONG,
    "getmoto/moto": _ONE_PROCESS,
    "iterative/dvc": _Runner(),
    "modin-project/modin": _ONE_PROCESS,
    "pandas-dev/pandas": _LONG,
    "pydantic/pydantic": _Runner(
        command="pytest -rA --tb=short -vv -o console_output_style=classic --no-header"
    ),
    "spyder-ide/spyder": _ONE_PROCESS,
}


def swe_bench(row: Row, options: Options, image: str = SWE_BENCH_IMAGE) -> VerificationDraft:
    """image: the rule of a row that names none. Raises RowRefused."""
    id = id_of(row, ("instance_id",))
    repo, patch = text_of(row, "repo"), text_of(row, "test_patch")
    if repo not in _RUNNERS:
        raise RowRefused("unknown_repository", f"no known test command for {repo or 'no repo'}")
    fail, succeed = tests_of(row, "FAIL_TO_PASS"), tests_of(row, "PASS_TO_PASS")
    files = _files(patch)
    if not patch or not files:
        raise RowRefused("no_test_patch", "no test_patch with a file of tests")
    if not fail:
        raise RowRefused("no_tests", "an empty FAIL_TO_PASS")
    named = text_of(row, "image_name", "docker_image")
    gold = chain.from_iterable(changed_by(text_of(row, "patch")))
    return VerificationDraft(
        id=id,
        settings={
            "image": image_of(options, named, image, **names_of_id(id)),
            "command": _command(repo, text_of(row, "version"), files),
            "report": _RUNNERS[repo].report,
            "seconds": options.seconds or _SECONDS,
            **common_settings(gold, _HIDDEN),
            "skipped_passes": True,
            "fail_to_pass": fail,
            "pass_to_pass": _own_tests(repo, files, succeed),
        },
        patch=patch if patch.endswith("\n") else f"{patch}\n",
    )


def _files(patch: str) -> list[str]:
    """The patch's files that the command gets, each once."""
    files = dict.fromkeys(after for _, after in changed_by(patch))
    return [file for file in files if not file.endswith(_NO_TESTS)]


def _command(repo: str, version: str, files: list[str]) -> str:
    runner = _RUNNERS[repo].command
    if repo == "django/django":
        files = [
            file.removesuffix(".py").removeprefix("tests/").replace("/", ".") for file in files
        ]
        if version != "1.9":
            runner += " --settings=test_sqlite --parallel 1"
        if version[:2] in ("1.", "2.", "3."):
            runner = _DJANGO_LANGUAGE + runner
    elif repo == "astropy/astropy" and version in _OLD_ASTROPY:
        runner += " -vv -o console_output_style=classic --tb=no"
    return " ".join((runner, *map(shlex.quote, files))) + "\n"


def _own_tests(repo: str, files: list[str], tests: list[str]) -> list[str]:
    """Without names that the set's reader took from a progress bar ("[100%]"), or from the output
    of a pytest that pytest's own tests run."""
    found = [test for test in tests if not test.startswith("[")]
    if repo == "pytest-dev/pytest":
        return [test for test in found if test.startswith(tuple(files))]
    return found
