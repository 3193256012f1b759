"""`tasks verifications`: rows of the published layouts as folders that the tool `swe` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from tasks.cli import app
from tasks.sets import Reading
from tests.support.swe_rows import (
    RUN_SCRIPT,
    TEST_PATCH,
    internal_row,
    nemotron_row,
    pro_row,
    r2e_row,
    swe_bench_row,
    write_scripts,
)
from toolsvc.tools.swe.verifying.tampering import PROTECTED
from toolsvc.tools.swe.verifying.verification import Verification, read_verification

PRO_ID = "instance_NodeBB__NodeBB-3f2a-vnan"
R2E_ID = "numpy__numpy-3f2a"


def rows_in(folder: Path, *rows: Any) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def run(form: str, rows: Path, output: Path, *words: object) -> Result:
    given = ("verifications", form, rows, "--output", output, *words)
    return CliRunner().invoke(app, [str(word) for word in given])


def made(form: str, folder: Path, row: Any, *words: object) -> Verification:
    found = run(form, rows_in(folder, row), folder / "v", *words)
    assert found.exit_code == 0, found.output + found.stderr
    assert found.output.startswith(f"{folder / 'v'}: 1 verifications; rejected: none\n")
    (settings,) = (folder / "v").rglob("verification.toml")
    name = str(settings.parent.relative_to(folder / "v"))
    return read_verification(settings.parent, name, 1 << 20)


def test_r2e(tmp_path: Path) -> None:
    expected = {"\x1b[1mtest_b\x1b[0m - why": "FAILED", "A.test_a": "PASSED", "": "ERROR"}
    row = r2e_row(expected_output_json=json.dumps(expected))
    found = made("r2e", tmp_path, row)
    file = found.file
    assert found.name == "3f2a"
    assert file.image == "docker.io/namanjain12/bill_final:3f2a"
    assert (file.report, file.seconds) == ("r2e", 300)
    assert file.expected == {"A.test_a": "PASSED", "test_b": "FAILED", "": "ERROR"}
    assert {"/r2e_tests", "r2e_tests", "run_tests.sh"} <= set(file.hidden)
    assert file.hide_history
    assert set(PROTECTED) <= set(file.protected)


def test_swe_bench(tmp_path: Path) -> None:
    found = made("swebench", tmp_path, swe_bench_row())
    file = found.file
    assert found.name == "pallets__flask-1"
    assert file.image == "docker.io/swebench/sweb.eval.x86_64.pallets_1776_flask-1:latest"
    assert (file.report, file.seconds) == ("pytest_words", 1800)
    assert file.command == "pytest -rA tests/test_bill.py\n"
    assert (file.fail_to_pass, file.pass_to_pass) == (
        ("tests/test_bill.py::test_rest",), ("tests/test_bill.py::test_even",),
    )  # fmt: skip
    assert (file.edited_tests, file.skipped_passes) == ("replaced", True)
    assert "setup.cfg" not in file.protected, "the recorded fix changes it"
    assert "tox.ini" in file.protected
    assert found.patch == TEST_PATCH


@pytest.mark.parametrize(
    ("repo", "version", "command", "report"),
    [
        ("django/django", "3.1", "export LANG", "django"),
        ("django/django", "4.1", "./tests/runtests.py --verbosity 2 --settings=test_sqlite "
         "--parallel 1 test_bill", "django"),
        ("django/django", "1.9", "./tests/runtests.py --verbosity 2 test_bill", "django"),
        ("sympy/sympy", "1.1", "bin/test -C --verbose tests/test_bill.py", "sympy"),
        ("sphinx-doc/sphinx", "3.0", "tox --current-env -epy39 -v -- tests/test", "pytest_whole"),
        ("astropy/astropy", "1.3", "-o console_output_style=classic --tb=no tests", "pytest_whole"),
        ("astropy/astropy", "5.0", "pytest -rA tests", "pytest_whole"),
        ("mwaskom/seaborn", "0.12", "pytest --no-header -rA tests", "seaborn"),
        ("matplotlib/matplotlib", "3.5", "pytest -rA tests", "matplotlib"),
        ("psf/requests", "2.4", "PYTHONPATH=$PWD pytest -rA tests", "pytest_options"),
        ("pandas-dev/pandas", "1.0", "pytest -rA --tb=long tests", "pytest_words"),
    ],
)  # fmt: skip
def test_how_the_repositories_of_swe_bench_run(
    tmp_path: Path, repo: str, version: str, command: str, report: str
) -> None:
    file = made("swebench", tmp_path, swe_bench_row(repo=repo, version=version)).file
    assert command in file.command
    assert file.report == report
    assert "test_bill" in file.command


def test_a_test_patch_in_parquet_and_what_is_no_test(tmp_path: Path) -> None:
    data = TEST_PATCH.replace("test_bill.py", "a b.json")
    row = swe_bench_row(test_patch=f"{data}{TEST_PATCH}".rstrip("\n"))
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "rows.parquet")
    found = run("swebench", tmp_path / "rows.parquet", tmp_path / "v")
    assert found.exit_code == 0, found.stderr
    read = read_verification(tmp_path / "v/pallets__flask-1", "x", 1 << 20)
    assert read.file.command == "pytest -rA tests/test_bill.py\n"
    assert read.patch == data + TEST_PATCH


def test_swe_bench_pro(tmp_path: Path) -> None:
    scripts = write_scripts(tmp_path / "pro", PRO_ID)
    found = made("swebench_pro", tmp_path, pro_row(), "--scripts", scripts)
    file = found.file
    assert found.name == PRO_ID
    assert file.image == "docker.io/jefzda/sweap-images:nodebb.nodebb-NodeBB__NodeBB-3f2a"
    assert (file.report, file.seconds) == ("results", 3600)
    assert file.fail_to_pass == ("tests/test_bill.py::test_rest", "a | it's whole")
    assert file.command.startswith("git checkout 4b1c -- tests/test_bill.py\n")
    assert "run_script.sh tests/test_bill.py,tests/b.py >" in file.command
    assert file.hide_history, "the image's history holds the tests and the fix"
    assert {entry.path for entry in found.overlay} == {
        ".toolwright/run_script.sh", ".toolwright/parser.py",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "tag"),
    [
        (pro_row(dockerhub_tag="x.y-z"), "x.y-z"),
        (pro_row(repo="element-hq/element-web", instance_id="instance_element-hq__e-1-vnan"),
         "element-hq.element-element-hq__e-1"),
        (pro_row(instance_id=f"instance_{'a' * 200}"), f"nodebb.nodebb-{'a' * 114}"),
    ],
)  # fmt: skip
def test_the_images_of_swe_bench_pro(tmp_path: Path, row: dict[str, Any], tag: str) -> None:
    scripts = write_scripts(tmp_path / "pro", row["instance_id"])
    file = made("swebench_pro", tmp_path, row, "--scripts", scripts).file
    assert file.image == f"docker.io/jefzda/sweap-images:{tag}"


def test_nemotron(tmp_path: Path) -> None:
    inner = {key: value for key, value in r2e_row().items() if key != "docker_image"}
    path = rows_in(
        tmp_path,
        nemotron_row("R2E-Gym/R2E-Gym-Subset", inner, R2E_ID),
        nemotron_row("SWE-Gym/SWE-Gym", swe_bench_row(repo="dask/dask"), "dask__dask-1"),
        nemotron_row("princeton-nlp/SWE-bench_Verified", swe_bench_row(), "pallets__flask-1"),
        nemotron_row("nv-internal-1", internal_row(image_name="nv/bill:7"), "bill-7"),
        nemotron_row("SWE-bench/SWE-bench_Multilingual", swe_bench_row(), "a__a-1"),
        nemotron_row("nv-internal-1", internal_row(), "bill-8"),
        {"question": "x"},
    )
    found = run("nemotron", path, tmp_path / "v")
    assert found.exit_code == 0, found.stderr
    assert "4 verifications; rejected: 1 with another harness" in found.output
    assert "1 with no image" in found.output
    assert "1 with another layout" in found.output
    read = {
        name: read_verification(tmp_path / "v" / name, name, 1 << 20)
        for name in (R2E_ID, "dask__dask-1", "pallets__flask-1", "bill-7")
    }
    assert [one.file.image for one in read.values()] == [
        "docker.io/namanjain12/numpy_final:3f2a",
        "docker.io/xingyaoww/sweb.eval.x86_64.dask_s_dask-1:latest",
        "docker.io/swebench/sweb.eval.x86_64.pallets_1776_flask-1:latest",
        "docker.io/nv/bill:7",
    ]
    assert [one.file.report for one in read.values()] == [
        "r2e", "pytest_words", "pytest_words", "results",
    ]  # fmt: skip
    assert read["bill-7"].file.fail_to_pass == ("tests/test_bill.py::test_rest",)
    assert {e.content.decode() for e in read["bill-7"].overlay} >= {RUN_SCRIPT}
    records = list(Reading("nemotron_swe", path))
    assert [one.extra["verification"] for one in records[:4]] == list(read)
    assert {one.question for one in records} == {"A bill of three loses a cent."}
    assert "test_rest" not in str([one.metadata() for one in records]), "tools are told no answer"


def test_ids_limits_and_images_are_the_operators_to_choose(tmp_path: Path) -> None:
    path = rows_in(tmp_path, r2e_row(), r2e_row(commit_hash="9c1d"), r2e_row(commit_hash="77aa"))
    words = ("--only", "9c1d", "--seconds", "20", "--image", "registry.local/{id}:{tag}")
    found = run("r2e", path, tmp_path / "v", *words)
    assert found.output.startswith(f"{tmp_path / 'v'}: 1 verifications; rejected: none")
    file = read_verification(tmp_path / "v/9c1d", "9c1d", 1 << 20).file
    assert (file.image, file.seconds) == ("registry.local/9c1d:3f2a", 20)
    again = run("r2e", path, tmp_path / "v")
    assert "2 verifications; 1 were there already; rejected: none" in again.output
    assert read_verification(tmp_path / "v/9c1d", "9c1d", 1 << 20).file.seconds == 20


@pytest.mark.parametrize("image", ["ghcr.io/x/y:1", "localhost/x", "host:5000/x"])
def test_a_name_with_its_registry_stays(tmp_path: Path, image: str) -> None:
    assert made("r2e", tmp_path, r2e_row(docker_image=image)).file.image == image


@pytest.mark.parametrize(
    ("form", "row", "reason"),
    [
        ("r2e", r2e_row(commit_hash="", docker_image=""), "no id"),
        ("r2e", r2e_row(commit_hash="../../etc"), "no id"),
        ("r2e", r2e_row(docker_image=""), "no image"),
        ("r2e", r2e_row(expected_output_json="[]"), "no expected output"),
        ("r2e", r2e_row(expected_output_json="{"), "no expected output"),
        ("r2e", r2e_row(expected_output_json={"a": 5}), "no expected output"),
        ("r2e", r2e_row(docker_image="\ud83d"), "half a character"),
        ("swebench", swe_bench_row(repo="x/x"), "unknown repository"),
        ("swebench", swe_bench_row(test_patch=""), "no test patch"),
        ("swebench", swe_bench_row(FAIL_TO_PASS="[]"), "no tests"),
        ("swebench", swe_bench_row(FAIL_TO_PASS="5"), "no list"),
        ("swebench", swe_bench_row(PASS_TO_PASS="[1]"), "no list"),
        ("swebench_pro", pro_row(), "no scripts"),
        ("nemotron", nemotron_row("nv-internal-1", pro_row(), "a"), "no scripts"),
        ("nemotron", nemotron_row("x", {}, "a"), "another harness"),
    ],
)
def test_a_rejected_row_is_counted_by_its_reason(
    tmp_path: Path, form: str, row: dict[str, Any], reason: str
) -> None:
    good = r2e_row() if form == "r2e" else swe_bench_row()
    if form == "nemotron":
        good = nemotron_row("SWE-bench", good, "pallets__flask-1")
    if form == "swebench_pro":
        found = run(form, rows_in(tmp_path, row), tmp_path / "v")
        assert (found.exit_code, f"1 with {reason}" in found.stderr) == (1, True)
        return
    found = run(form, rows_in(tmp_path, row, good), tmp_path / "v")
    assert found.exit_code == 0, found.stderr
    assert (
        f"1 verifications; rejected: 1 with {reason}, the first is rows.jsonl:1: " in found.output
    )
    assert len(list((tmp_path / "v").iterdir())) == 1, "no draft is left"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--only", "zzz"), "--only zzz: no row has that id"),
        (("--image", "{hash}"), "the set has {id}, {image}, {tag}"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    found = run("r2e", rows_in(tmp_path, r2e_row()), tmp_path / "v", *words)
    assert found.exit_code == 1
    assert says in found.stderr
    other = run("swebench", rows_in(tmp_path, r2e_row()), tmp_path / "v")
    assert "no row is one of swebench: 1 with no id" in other.stderr
