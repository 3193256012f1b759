"""Logs of test runners in the formats of published sets: what counts, and what only looks like it.

The logs are written here after the public readers' rules; no line is taken from a set."""

from __future__ import annotations

import time

import pytest

from toolsvc.tools.swe.verifying.logs.results import MARK
from toolsvc.tools.swe.verifying.report import PYTEST, Report, read_report
from toolsvc.tools.swe.verifying.verification_file import VerificationFile

START = "==== test session starts ====\nplatform linux -- Python 3.9\n"
HEADER = "======== short test summary info ========\n"
END = "==== 1 failed, 3 passed, 2 warnings in 65.03s (0:01:05) ====\n"


def session(summary: str, before: str = "", end: str = END) -> str:
    return f"{START}tests/test_a.py .F..\n{before}{HEADER}{summary}{end}"


R2E = session(
    "\x1b[32mPASSED\x1b[0m r2e_tests/test_1.py::\x1b[1mtest_plain\x1b[0m\n"
    "PASSED r2e_tests/test_1.py::TestA::test_x\n"
    "PASSED r2e_tests/test_1.py::TestA::test_ids[a b::c - d]\n"
    "PASSED r2e_tests/test_1.py::test_twice\n"
    "SKIPPED [1] r2e_tests/test_1.py:3: no network\n"
    "XFAIL r2e_tests/test_1.py::test_known\n"
    "ERROR r2e_tests/test_2.py - ImportError: no module\n"
    "FAILED r2e_tests/test_2.py::test_twice - assert 'PASSED' == 'x'\n"
)
WORDS = session(
    "PASSED tests/test_a.py::test_b[x y]\n"
    "PASSED tests/test_a.py::test_p[/home/me/data.txt]\n"
    "PASSED tests/test_a.py::test_u[//host/a]\n"
    "PASSED tests/test_a.py::test_m[MouseButton.LEFT]\n"
    "SKIPPED [2] tests/test_a.py:9: not here\n"
    "XFAIL tests/test_a.py::test_known\n"
    "FAILED tests/test_a.py::test_c - assert 1 == 2\n"
)
DJANGO = """\
Testing against Django installed in '/testbed/django' with up to 1 processes
  Applying sites.0001_initial... OK
test_one (app.tests.TestA) ... ok
test_two (app.tests.TestA)
Says what it does. ... ok
test_three (app.tests.TestA) ... Internal Server Error: /x/
Traceback (most recent call last):
ok
test_four (app.tests.TestA) ... skipped 'a ... reason'
test_five (app.tests.TestA) ... FAIL
test_six (app.tests.TestA) ...\x20
ok
test_seven (app.tests.TestA) ... expected failure
======================================================================
FAIL: test_five (app.tests.TestA) (number=1)
----------------------------------------------------------------------
Ran 7 tests in 1.234s

FAILED (failures=1, skipped=1)
"""
SYMPY = """\
sympy/core/tests/test_a.py[4]
test_one ok
test_two F
test_three E                                                                [FAIL]
_______________________________________________________________________________
__________________ sympy/core/tests/test_a.py:test_two ___________________
  File "sympy/core/tests/test_a.py", line 3, in test_two
============= tests finished: 1 passed, 1 failed, 1 exceptions, in 0.10 seconds ==============
"""
PROGRESS = (
    START + "tests/test_a.py::test_one PASSED                        [ 33%]\n"
    "tests/test_a.py::test_ids[x y] PASSED\n"
    "tests/test_a.py::test_two FAILED\n"
    "==== FAILURES ====\n____ test_two ____\ntests/test_a.py::test_two PASSED\n" + END
)
RESULTS = f'noise\n{MARK}{{"tests": [{{"name": "a | it\'s", "status": "PASSED"}}]}}\n'


@pytest.mark.parametrize(
    ("report", "log", "found"),
    [
        (
            "r2e",
            R2E,
            {
                "test_plain": "PASSED", "TestA.test_x": "PASSED", "TestA.test_ids[a b.c": "PASSED",
                "": "ERROR", "test_twice": "FAILED",
            },
        ),
        (
            "pytest_words",
            WORDS,
            {
                "tests/test_a.py::test_b[x": "PASSED",
                "tests/test_a.py::test_p[/home/me/data.txt]": "PASSED",
                "tests/test_a.py::test_u[//host/a]": "PASSED",
                "tests/test_a.py::test_m[MouseButton.LEFT]": "PASSED",
                "tests/test_a.py::test_known": "PASSED",
                "tests/test_a.py::test_c": "FAILED",
            },
        ),
        (
            "django",
            DJANGO,
            {
                "test_one (app.tests.TestA)": "PASSED", "Says what it does.": "PASSED",
                "test_three (app.tests.TestA)": "PASSED", "test_four (app.tests.TestA)": "SKIPPED",
                "test_five (app.tests.TestA)": "FAILED", "test_six (app.tests.TestA)": "PASSED",
                "test_seven (app.tests.TestA)": "PASSED",
            },
        ),
        (
            "sympy",
            SYMPY,
            {
                "test_one": "PASSED", "test_two": "FAILED", "test_three": "ERROR",
                "sympy/core/tests/test_a.py:test_two": "FAILED",
            },
        ),
        (
            "pytest_whole",
            PROGRESS,
            {
                "tests/test_a.py::test_one": "PASSED", "tests/test_a.py::test_ids[x y]": "PASSED",
                "tests/test_a.py::test_two": "FAILED",
            },
        ),
        (
            "seaborn",
            PROGRESS,
            {
                "tests/test_a.py::test_one": "PASSED", "tests/test_a.py::test_two": "FAILED",
            },
        ),
        ("results", RESULTS, {"a | it's": "PASSED"}),
    ],
)  # fmt: skip
def test_a_log_in_its_published_form(report: Report, log: str, found: dict[str, str]) -> None:
    assert read_report(report, log) == found
    if report != "results":  # whose line the command itself prints
        assert read_report(report, log.replace("\n", "\r\n")) == found


def test_what_the_formats_of_pytest_do_to_names() -> None:
    options = read_report("pytest_options", WORDS)
    assert "tests/test_a.py::test_p[/data.txt]" in options
    assert "tests/test_a.py::test_u[//host/a]" in options
    assert "tests/test_a.py::test_m[1]" in read_report("matplotlib", WORDS)
    whole = read_report("pytest_whole", WORDS)
    assert whole["tests/test_a.py::test_b[x y]"] == "PASSED"
    assert whole["tests/test_a.py::test_c"] == "FAILED"
    seaborn = read_report("seaborn", WORDS)
    assert "tests/test_a.py::test_known" not in seaborn


OWN = [report for report in PYTEST if report != "pytest"]
FORGED = f"{HEADER}PASSED tests/test_a.py::test_c\n==== 1 passed in 0.01s ====\n"


@pytest.mark.parametrize("report", OWN)
@pytest.mark.parametrize(
    ("log", "status"),
    [
        # A test prints a summary line, or a whole summary, in its own output.
        (session("FAILED a.py::test_c - x\n", "PASSED a.py::test_c\n"), "FAILED"),
        (session("FAILED a.py::test_c - x\n", FORGED.replace("tests/test_a", "a")), "FAILED"),
        (session("PASSED a.py::test_d\n", FORGED.replace("tests/test_a", "a")), None),
        # The code under test prints a summary after the runner's own.
        (session("FAILED a.py::test_c - x\n") + FORGED.replace("tests/test_a", "a"), "FAILED"),
        # One test is reported twice.
        (session("PASSED a.py::test_c\nERROR a.py::test_c - teardown\n"), {"ERROR", None}),
        (session("FAILED a.py::test_c - x\nPASSED a.py::test_c\n"), "FAILED"),
        # The log breaks off, or has no summary.
        (session("PASSED a.py::test_c\n", end=""), None),
        (session("PASSED a.py::test_c\n", end="Killed\n"), None),
        (f"{START}PASSED a.py::test_c\n{END}", None),
        ("PASSED a.py::test_c\n", None),
        ("", None),
        # What only looks like the runner's rules.
        (session("PASSED a.py::test_c\n").replace("==== 1 failed", "= = 1 failed"), None),
        (session("PASSED a.py::test_c\n").replace("3 passed", "three passed"), None),
    ],
)
def test_a_tests_own_output_does_not_count(report: Report, log: str, status: object) -> None:
    found = read_report(report, log)
    name = "test_c" if report == "r2e" else "a.py::test_c"
    if report == "seaborn" and "teardown" in log:
        return  # its reader does not know errors: the passed line counts, as published
    allowed = status if isinstance(status, set) else {status}
    assert found.get(name) in allowed


@pytest.mark.parametrize(
    ("report", "log"),
    [
        # More passed lines than tests that ran: one of them is forged.
        ("django", "test_a (x.T) ... ok\ntest_b (x.T) ... ok\nRan 1 test in 0.001s\n\nOK\n"),
        ("sympy", "test_a ok\ntest_b ok\n==== tests finished: 1 passed, in 0.01 seconds ====\n"),
        # A failure stands.
        ("django", "test_a (x.T) ... FAIL\ntest_a (x.T) ... ok\nRan 2 tests in 0.001s\n"),
        ("sympy", "test_a F\ntest_a ok\n=== tests finished: 1 passed, 1 failed, in 1 s ===\n"),
        # The log breaks off.
        ("django", "test_a (x.T) ... ok\n"),
        ("sympy", "test_a ok\n"),
        ("results", f'{MARK}{{"tests": [{{"name": "test_a", "status": "PASS'),
        # No results, other words, other shapes, and a failure under the same name.
        ("results", '{"tests": [{"name": "test_a", "status": "PASSED"}]}'),
        ("results", f'{MARK}{{"tests": [{{"name": "test_a", "status": "passed"}}]}}'),
        ("results", f'{MARK}{{"tests": [{{"name": "test_a"}}]}}'),
        ("results", f"{MARK}[]"),
        ("results", f'{MARK}{{"tests": [{{"name": "test_a", "status": "PASSED"}}]}} PASSED'),
        ("results", f'{MARK}{{"tests": [{{"name": "test_a", "status": "FAILED"}},'
                    f'{{"name": "test_a", "status": "PASSED"}}]}}'),
    ],
)  # fmt: skip
def test_what_is_forged_or_cut_off_is_not_passed(report: Report, log: str) -> None:
    found = read_report(report, log)
    assert "PASSED" not in (found.get("test_a"), found.get("test_a (x.T)"))


@pytest.mark.parametrize("report", [*OWN, "django", "sympy", "results"])
@pytest.mark.parametrize(
    "line", ["=" * 100, "x ... " * 100, "_ a.py:b " * 100, "\x1b[" * 100, f"{MARK}[[", "test_a ok "]
)
def test_a_long_log_is_read_in_linear_time(report: Report, line: str) -> None:
    began = time.process_time()
    read_report(report, line * 20_000)
    read_report(report, (line + "\n") * 5_000 + END)
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize(
    ("report", "log"),
    [
        ("sympy", f"_ {'.py:' * 200_000}x\n= tests finished: 1 passed, in 1.0 seconds =\n"),
        ("pytest_whole", f"{START}{' ' * 400_000}x\n{END}"),
    ],
)
def test_one_long_line_of_a_whole_log_is_read_in_linear_time(report: Report, log: str) -> None:
    began = time.process_time()
    read_report(report, log)
    assert time.process_time() - began < 5.0


def test_many_names_are_judged_in_linear_time() -> None:
    wanted = tuple(f"a::t{place}[x(" for place in range(2_000))
    file = VerificationFile(command="true", report="pytest_words", fail_to_pass=wanted)
    statuses = {f"{name}{end})]": "PASSED" for name in wanted for end in range(50)}
    began = time.process_time()
    assert not file.unmet(statuses)
    assert time.process_time() - began < 5.0


def test_which_lists_a_log_meets() -> None:
    base = {"command": "true", "report": "pytest_words"}
    file = VerificationFile(
        **base, fail_to_pass=("a::t[x(y",), pass_to_pass=("a::s",), skipped_passes=True
    )
    assert file.holds({"a::t[x(y": "PASSED", "a::s": "PASSED"})
    assert file.holds({"a::t[x(y z)]": "PASSED", "a::t[x(y w)]": "PASSED", "a::s": "SKIPPED"})
    assert not file.holds({"a::t[x(y z)]": "PASSED", "a::t[x(y w)]": "FAILED", "a::s": "PASSED"})
    assert not file.holds({"a::t[x(y z)]": "SKIPPED", "a::s": "PASSED"})
    assert not file.holds({"a::t[x(y": "PASSED"}), "a missing test has failed"
    strict = VerificationFile(**base, fail_to_pass=("a::t",), pass_to_pass=("a::s",))
    assert not strict.holds({"a::t": "PASSED", "a::s": "SKIPPED"})
    assert not strict.holds({"a::t[1]": "PASSED", "a::s": "PASSED"})
