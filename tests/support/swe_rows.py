"""Rows of software engineering in their published layouts, written for tests: no row is of a set.

Columns are those of the public readers R2E-Gym/R2E-Gym, SWE-bench/SWE-bench,
scaleapi/SWE-bench_Pro-os and NVIDIA-NeMo/Gym."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TEST_PATCH = """\
diff --git a/tests/test_bill.py b/tests/test_bill.py
--- a/tests/test_bill.py
+++ b/tests/test_bill.py
@@ -1,5 +1,9 @@
 from bill import share
~
~
 def test_even():
     assert share(100, 4) == [25] * 4
+
+
+def test_rest():
+    assert share(100, 3) == [34, 33, 33]
""".replace("~", " ")
"""Of VISIBLE_TESTS."""
VISIBLE_TESTS = """\
from bill import share


def test_even():
    assert share(100, 4) == [25] * 4
"""
HIDDEN_TESTS = (
    VISIBLE_TESTS
    + """

def test_rest():
    assert share(100, 3) == [34, 33, 33]
"""
)
GOLD = """\
diff --git a/bill.py b/bill.py
--- a/bill.py
+++ b/bill.py
@@ -1 +1 @@
-x
+y
diff --git a/setup.cfg b/setup.cfg
--- a/setup.cfg
+++ b/setup.cfg
@@ -1 +1 @@
-x
+y
"""
RUN_SCRIPT = """\
#!/bin/bash
IFS=',' read -r -a files <<< "$1"
python3 -m pytest -v "${files[@]}"
"""
PARSER = """\
import json, re, sys
out = open(sys.argv[1]).read() + open(sys.argv[2]).read()
found = re.findall(r"^(\\S+::\\S+) (PASSED|FAILED|ERROR)", out, re.M)
json.dump({"tests": [{"name": n, "status": s} for n, s in found]}, open(sys.argv[3], "w"))
"""


def r2e_row(**more: Any) -> dict[str, Any]:
    return {
        "repo_name": "bill",
        "docker_image": "namanjain12/bill_final:3f2a",
        "commit_hash": "3f2a",
        "parsed_commit_content": "{}",
        "modified_files": ["bill.py"],
        "problem_statement": "[ISSUE]\nA bill of three loses a cent.\n[/ISSUE]",
        "expected_output_json": json.dumps({"test_even": "PASSED", "test_rest": "PASSED"}),
        **more,
    }


def swe_bench_row(**more: Any) -> dict[str, Any]:
    return {
        "repo": "pallets/flask",
        "instance_id": "pallets__flask-1",
        "base_commit": "3f2a",
        "version": "2.0",
        "patch": GOLD,
        "test_patch": TEST_PATCH,
        "problem_statement": "A bill of three loses a cent.",
        "hints_text": "",
        "FAIL_TO_PASS": json.dumps(["tests/test_bill.py::test_rest"]),
        "PASS_TO_PASS": json.dumps(["tests/test_bill.py::test_even", "[100%]"]),
        "environment_setup_commit": "3f2a",
        **more,
    }


def pro_row(**more: Any) -> dict[str, Any]:
    """Its lists are as Python prints them, in columns of lower case."""
    return {
        "repo": "NodeBB/NodeBB",
        "instance_id": "instance_NodeBB__NodeBB-3f2a-vnan",
        "base_commit": "3f2a",
        "patch": GOLD,
        "test_patch": TEST_PATCH,
        "problem_statement": "A bill of three loses a cent.",
        "fail_to_pass": "['tests/test_bill.py::test_rest', \"a | it's whole\"]",
        "pass_to_pass": "['tests/test_bill.py::test_even']",
        "before_repo_set_cmd": "git reset --hard 3f2a\ngit checkout 4b1c -- tests/test_bill.py",
        "selected_test_files_to_run": "['tests/test_bill.py', 'tests/b.py']",
        **more,
    }


def nemotron_row(dataset: str, inner: dict[str, Any], id: str) -> dict[str, Any]:
    return {
        "responses_create_params": {
            "input": [],
            "metadata": {
                "instance_id": id,
                "base_commit": "3f2a",
                "dataset_name": dataset,
                "split": "train",
                "problem_statement": "A bill of three loses a cent.",
                "golden_patch": GOLD,
                "instance_dict": json.dumps(inner),
            },
        },
        "agent_ref": {"type": "responses_api_agents", "name": "swe_agents_train"},
    }


def internal_row(**more: Any) -> dict[str, Any]:
    """The inner row of nv-internal-1."""
    return {
        **pro_row(),
        "instance_id": "bill-7",
        "fail_to_pass_select": '["tests/test_bill.py::test_rest"]',
        "pass_to_pass_select": '["tests/test_bill.py::test_even"]',
        "run_script.sh": RUN_SCRIPT,
        "parsing_script.py": PARSER,
        "base_dockerfile": "FROM python\nENV A=1",
        **more,
    }


def write_scripts(folder: Path, id: str) -> Path:
    """A checkout of SWE-bench_Pro-os with the scripts of one instance."""
    scripts = folder / "run_scripts" / id
    scripts.mkdir(parents=True)
    (scripts / "run_script.sh").write_text(RUN_SCRIPT, encoding="utf-8")
    (scripts / "parser.py").write_text(PARSER, encoding="utf-8")
    return folder
