"""What a box is prepared by, and what of a verification no policy sees: in real sandboxes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.repository import HIDDEN_TESTS, TESTS
from tests.support.swe import Source, bash, fix, serving, submit
from tests.support.trajectory import Trajectory
from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

ADDED = HIDDEN_TESTS.removeprefix(TESTS).splitlines()
LINES = TESTS.splitlines()
PATCH = "\n".join((
    "diff --git a/tests/test_bill.py b/tests/test_bill.py",
    "--- a/tests/test_bill.py", "+++ b/tests/test_bill.py",
    f"@@ -{len(LINES)},1 +{len(LINES)},{len(ADDED) + 1} @@", f" {LINES[-1]}",
    *(f"+{line}" for line in ADDED),
    "diff --git a/tests/new.txt b/tests/new.txt", "new file mode 100644", "--- /dev/null",
    "+++ b/tests/new.txt", "@@ -0,0 +1 @@", "+x", "",
))  # fmt: skip
SETTINGS = """\
command = "test -e README && test -e tests/new.txt && echo $VIRTUAL_ENV >&2 && \
python3 -m unittest -v tests.test_bill"
report = "unittest"
seconds = 60
fail_to_pass = ["tests.test_bill.TestShare.test_rest"]
pass_to_pass = ["tests.test_bill.TestShare.test_even", "tests.test_bill.TestShare.test_one"]
hidden = ["README", "/nowhere/tests"]
hide_history = true
"""
SETUP = "mkdir -p ~/env/bin; printf 'echo mine' > ~/env/bin/own; chmod +x ~/env/bin/own; touch made"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    made = Source(tmp_path_factory.mktemp("swe"))
    for name, edited in (("refused", "refused"), ("replaced", "replaced"), ("foreign", "refused")):
        folder: Path = made.verifications / name
        folder.mkdir()
        (folder / "verification.toml").write_text(
            f"{SETTINGS}edited_tests = {json.dumps(edited)}\n", encoding="utf-8"
        )
        patch = PATCH.replace(LINES[-1], "another line") if name == "foreign" else PATCH
        (folder / "tests.patch").write_text(patch, encoding="utf-8")
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(source: Source) -> AsyncIterator[Host]:
    async with serving(source, setup=SETUP, environment=("/nowhere", "~/env")) as running:
        yield running


def opened(host: Host, source: Source, verification: str) -> Trajectory:
    return Trajectory(host, "swe", source.task(verification=verification))


async def test_the_policys_box_lacks_what_is_hidden_and_its_history(
    host: Host, source: Source
) -> None:
    session = opened(host, source, "refused")
    assert await bash(session, "ls; ls made") == "bill.py\nmade\ntests\nmade"
    assert await bash(session, "git log --format=%s; git status --short") == "The tree of the task"
    assert "exit code" in await bash(session, f"git cat-file -e {source.buggy}")
    assert "exit code" in await bash(session, f"git cat-file -e {source.fixed}")
    assert await bash(session, "own; basename $VIRTUAL_ENV") == "mine\nenv"
    await fix(session)
    result = await submit(session)
    assert (result.reward, result.metrics["tests_passed"]) == (1.0, 3)


EASY = "sed -i 's/def test_.*/&\\n        return/' tests/test_bill.py"


@pytest.mark.parametrize(
    ("change", "refused", "replaced"),
    [
        ("true", 1.0, 1.0),
        # A file of the test patch, one that it adds, one that is hidden, and the way to them.
        ("echo '# more' >> tests/test_bill.py", 0.0, 1.0),
        ("rm tests/test_bill.py", 0.0, 1.0),
        ("echo y > tests/new.txt", 0.0, 1.0),
        ("echo y > README", 0.0, 1.0),
        ("mkdir README && touch README/a", 0.0, 1.0),
        ("mv tests t && ln -s t tests", 0.0, 0.0),
        ("touch conftest.py", 0.0, 0.0),
    ],
)
async def test_a_fix_beside_a_change_of_the_verifications_files(
    host: Host, source: Source, change: str, refused: float, replaced: float
) -> None:
    for verification, reward in (("refused", refused), ("replaced", replaced)):
        session = opened(host, source, verification)
        await fix(session)
        assert "exit code" not in await bash(session, change)
        assert (await submit(session)).reward == reward, verification


async def test_edited_tests_are_no_fix(host: Host, source: Source) -> None:
    session = opened(host, source, "replaced")
    assert "OK" in await bash(session, f"{EASY}; python3 -m unittest 2>&1 | tail -n 1")
    result = await submit(session)
    assert (result.reward, result.metrics["tests_passed"]) == (0.0, 2)


async def test_a_patch_of_another_repository_is_not_the_policys_doing(
    host: Host, source: Source
) -> None:
    session = opened(host, source, "foreign")
    await fix(session)
    with pytest.raises(Refused, match=r"tests.patch of 'foreign' does not apply") as caught:
        await submit(session)
    assert caught.value.reason is Reason.BACKEND_DOWN


@pytest.mark.parametrize(("code", "reward"), [(0, 1.0), (1, 0.0), (139, 1.0)])
async def test_a_log_without_the_failure_that_its_runner_had_is_not_believed(
    source: Source, host: Host, code: int, reward: float
) -> None:
    """A runner may crash in its own end, as some do after all tests passed."""
    folder = source.verifications / f"ends-with-{code}"
    (folder / "files").mkdir(parents=True)
    (folder / "files/log.txt").write_text(
        "==== short test summary info ====\nPASSED a.py::test_a\n==== 1 passed in 0.1s ====\n",
        encoding="utf-8",
    )
    (folder / "verification.toml").write_text(
        f'command = "cat log.txt; exit {code}"\nreport = "pytest_words"\n'
        'fail_to_pass = ["a.py::test_a"]\n',
        encoding="utf-8",
    )
    assert (await submit(opened(host, source, folder.name))).reward == reward


async def test_a_box_that_cannot_be_prepared_does_not_start(source: Source) -> None:
    async with serving(source, setup="echo no network >&2; exit 3") as host:
        with pytest.raises(Refused, match=r"preparation ended with exit code 1: no network"):
            await opened(host, source, "refused").open()
