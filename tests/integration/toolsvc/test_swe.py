"""The swe tool on a small real repository, in real sandboxes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.swe import Source, bash, call, edit, fix, serving, submit
from tests.support.trajectory import Trajectory, said
from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source(tmp_path_factory.mktemp("swe"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(source: Source) -> AsyncIterator[Host]:
    async with serving(source) as running:
        yield running


async def test_a_policy_finds_and_fixes_the_bug(host: Host, source: Source) -> None:
    session = Trajectory(host, "swe", source.task())
    seen = await edit(session, "view", ".")
    assert said(seen) == "./README\n./bill.py\n./tests/\n./tests/__init__.py\n./tests/test_bill.py"
    found = said(await session.act(call("search", search_term="// people", path=".")))
    assert found == "./bill.py:6:    each = total // people"
    assert "OK" in await bash(session, "python3 -m unittest 2>&1 | tail -n 1")
    asked = "python3 -c 'import bill; print(bill.share(100, 3))'"
    assert await bash(session, asked) == "[33, 33, 33]"
    await fix(session)
    assert await bash(session, asked) == "[34, 33, 33]"
    result = await submit(session)
    assert result.reward == 1.0
    assert (result.metrics["tests_passed"], result.metrics["tests_wanted"]) == (3, 3)
    assert result.metrics["start_seconds"] > 0
    assert result.metrics["tests_seconds"] > 0
    after = await session.act(call("submit"))
    assert (after.valid, after.reward, after.done) == (False, None, False)


HOSTILE_TESTS = """
import unittest
class TestShare(unittest.TestCase):
    def test_even(self): pass
    def test_one(self): pass
    def test_rest(self): pass
"""
FORGER = """
import sys
for name in ('even', 'one', 'rest'):
    print(f'test_{name} (tests.test_bill.TestShare.test_{name}) ... ok', file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("attack", "tampered"),
    [
        ("true", 0),
        (f"cat > tests/test_bill.py <<'E'\n{HOSTILE_TESTS}E", 1),
        ("rm tests/test_bill.py", 1),
        ("rm -r tests && mkdir ../t && ln -s ../t tests", 2),
        ("ln -sf /dev/null tests/test_bill.py", 1),
        ("rm tests/test_bill.py && mkdir tests/test_bill.py && touch tests/test_bill.py/a", 2),
        ("echo import sys > conftest.py", 1),
        ("touch sitecustomize.py", 1),
        ("touch unittest.py", 1),
        ("mkdir unittest && touch unittest/__main__.py", 1),
        ("touch tests/types.py", 1),
        # Python takes a package before the verifier's module.
        (f"mkdir tests/test_bill; cat > tests/test_bill/__init__.py <<'E'\n{HOSTILE_TESTS}E", 1),
        # What is outside of the repository, or compiled, does not come along.
        ("mkdir ~/bin && ln -s /bin/true ~/bin/python3 && echo 'PATH=~/bin:$PATH' > ~/.bashrc", 0),
        (
            f"cat > a.py <<'E'\n{HOSTILE_TESTS}E\npython3 - <<'E'\nimport py_compile\n"
            "py_compile.compile('a.py', 'tests/__pycache__/test_bill.cpython-311.pyc',"
            " invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)\nE\nrm a.py",
            0,
        ),
        ("git config core.fsmonitor 'touch ~/x' && git config alias.status '!false'", 0),
        # A forged report beside the true one is a conflict.
        (f"cat >> bill.py <<'E'\n{FORGER}E", 0),
        ("cp /proc/self/exe 'bad\nname' && mkdir -p a/b && ln -s / a/b/root && rm README", 0),
    ],
)
async def test_what_reaches_for_the_verification_is_not_paid(
    host: Host, source: Source, attack: str, tampered: int
) -> None:
    session = Trajectory(host, "swe", source.task())
    assert "exit code" not in await bash(session, attack)
    result = await submit(session)
    assert (result.reward, result.metrics["tampered_files"]) == (0.0, tampered)


async def test_a_fix_does_not_buy_a_change_of_the_tests(host: Host, source: Source) -> None:
    session = Trajectory(host, "swe", source.task())
    await fix(session)
    await bash(session, "echo '# mine' >> tests/test_bill.py; touch tests/test_mine.py")
    result = await submit(session)
    assert (result.reward, result.metrics["tampered_files"]) == (0.0, 1)


async def test_tests_of_its_own_and_what_is_left_running_do_no_harm(
    host: Host, source: Source
) -> None:
    session = Trajectory(host, "swe", source.task())
    await fix(session)
    await bash(session, "mkdir test; touch test/a.py tests/test_mine.py; yes noise &")
    result = await submit(session)
    assert result.reward == 1.0


@pytest.mark.parametrize(
    ("code", "timed_out"),
    [
        ("while True: pass", 1),
        ("import signal, time; signal.signal(2, signal.SIG_IGN); time.sleep(99)", 1),
        ("import os; os._exit(0)", 0),
        ("a = []\nwhile True: a.append(bytes(1 << 20))", 0),
        ("import os\nwhile True: os.write(1, bytes(1 << 20))", 1),
    ],
)
async def test_who_spoils_the_verification_is_not_paid(
    host: Host, source: Source, code: str, timed_out: int
) -> None:
    session = Trajectory(host, "swe", source.task(verification="impatient"))
    await fix(session)
    await bash(session, f"cat >> bill.py <<'E'\n{code}\nE")
    result = await submit(session)
    assert (result.reward, result.metrics["verification_timeout"]) == (0.0, timed_out)
    assert result.metrics["tests_seconds"] < 30


@pytest.mark.parametrize("name", ["bill", "bill.bundle", "bill.tar.gz"])
async def test_history_ends_at_the_commit(host: Host, source: Source, name: str) -> None:
    session = Trajectory(host, "swe", source.task(repository=name))
    assert await bash(session, "git log --all --format=%s; git status --short") == (
        "In cents\nSplit bills"
    )
    assert "exit code 128" in await bash(session, f"git cat-file -p {source.fixed}")
    left = await bash(session, f"grep -rF -e {source.fixed} -e {source.repositories} .git")
    assert left == "[exit code 1]"
    await bash(session, "git commit -qam mine --allow-empty && git log -1 --format=%an")
    assert said(await edit(session, "view", "bill.py", view_range="[1, 1]")).endswith('bills."""')
    await session.close()


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ({}, "cannot be checked out"),
        ({"repository": "../verifications"}, "metadata.repository is '../verifications'"),
        ({"repository": "/etc"}, "metadata.repository is '/etc'"),
        ({"repository": "bill", "commit": "--help"}, "cannot be checked out"),
        ({"repository": "bill", "verification": "../x"}, "metadata.verification is '../x'"),
        ({"repository": "bill", "image": "x"}, "metadata.image is 'x', which is not allowed"),
        ({"repository": 7}, "metadata.repository is 7, not a text"),
    ],
)
async def test_a_task_that_is_not_there_is_refused(
    host: Host, task: dict[str, Any], says: str
) -> None:
    with pytest.raises(Refused, match=says) as caught:
        await Trajectory(host, "swe", task).open()
    assert caught.value.reason is Reason.INVALID_REQUEST


async def test_files_are_edited(host: Host, source: Source) -> None:
    session = Trajectory(host, "swe", source.task())
    await edit(session, "create", "a b/'new'.txt", file_text="\none\n\ntwo\n\n")
    again = await edit(session, "create", "a b/'new'.txt", file_text="")
    assert said(again).startswith("a b/'new'.txt exists")
    assert again.error is None, "the policy can correct it, and it ends nothing"
    shown = await edit(session, "insert", "a b/'new'.txt", insert_line=1, new_str="half")
    assert "     2\thalf" in said(shown)
    await edit(session, "undo_edit", "a b/'new'.txt")
    assert await bash(session, "cat a*/*; stat -c %a bill.py") == "one\n\ntwo\n644"
    await edit(session, "undo", "a b/'new'.txt")
    assert await bash(session, "ls 'a b'") == ""
    await bash(
        session,
        "printf '\\377' > binary; ln -s bill.py link; ln -s /nowhere lost; chmod 755 bill.py",
    )
    for path, says in (
        ("binary", "binary is not a text in UTF-8"),
        ("nothing", "nothing: no such file"),
        ("lost", "lost: it is a link to nothing"),
        ("/dev/null", "/dev/null: it is a character special file"),
    ):
        assert said(await edit(session, "view", path)) == says
    await edit(session, "str_replace", "link", old_str="cents", new_str="pence")
    assert await bash(session, "grep -c pence bill.py; stat -c '%F %a' bill.py link") == (
        "1\nregular file 755\nsymbolic link 777"
    )
    await session.close()


async def test_programs_can_be_refused(source: Source) -> None:
    async with serving(source, denied=["git", "vi"]) as host:
        session = Trajectory(host, "swe", source.task())
        for command in ("git log", "ls; /usr/bin/git log", "(vi bill.py)"):
            result = await session.act(call("execute_bash", command=command))
            assert not result.valid
            assert "execute_bash refuses" in said(result)
        assert await bash(session, "ls .git/HEAD; echo git-log digit") == ".git/HEAD\ngit-log digit"


async def test_one_repository_and_one_verification_need_no_names(source: Source) -> None:
    one = {
        "repositories": source.repositories / "bill.bundle",
        "verifications": source.verifications / "bill-1",
    }
    async with serving(source, **one) as host:
        assert (await submit(Trajectory(host, "swe", {}))).reward == 1.0
