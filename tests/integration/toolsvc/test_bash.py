"""The bash tool, in real sandboxes."""

import asyncio
import dataclasses
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from tests.support.trajectory import Trajectory, said
from tests.support.waiting import until
from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host
from toolsvc.plugin.registry import make_registered
from toolsvc.sandbox.config import MIB, Backend, SandboxConfig
from toolsvc.tools.bash.bash_tool import BashOptions, BashTool
from toolsvc.types import Result
from toolwright.types import ToolErrorKind

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

SMALL = SandboxConfig(shards=1, ready=2, memory_bytes=192 * MIB, disk_bytes=8 * MIB, processes=24)
KEPT = 4096
STUBBORN = """python3 -c '
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)'"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[Host]:
    async with Host([BashTool(BashOptions(output_kib=KEPT // 1024), SMALL)]) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def session(host: Host) -> AsyncIterator[Trajectory]:
    metadata = {"files": {"notes/a.txt": "one\ntwo\nthree\n"}}
    trajectory = Trajectory(host, "bash", metadata)
    yield trajectory
    await trajectory.close()


BROKEN = 'for p in /usr/bin/*; do [ -x "$p" ] || echo "$p"; done'
SOURCE = "#include <math.h>\\nint main(void) { return (int)cbrt(27); }"
WORKS = f"""
awk 'BEGIN {{ print 6 * 7 }}'
which which
perl -MFile::Find -e 'print "perl\n"'
command -v cc > cc && printf '{SOURCE}' > a.c && cc a.c -o a -lm && {{ ./a; echo $? > out; }}
[ ! -s cc ] || cat out
"""


@pytest.fixture(scope="module")
def broken_here() -> str:
    done = subprocess.run(["bash", "-c", BROKEN], check=False, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.parametrize("backend", [Backend.FIREJAIL, Backend.BUBBLEWRAP])
async def test_the_machines_own_programs_work(backend: Backend, broken_here: str) -> None:
    """Those too that are links by way of /etc/alternatives, and what reads /usr/share."""
    sandbox = dataclasses.replace(SMALL, backend=backend)
    async with Host([BashTool(sandbox=sandbox)]) as running:
        session = Trajectory(running, "bash")
        assert await ask(session, BROKEN) == broken_here
        lines = ["42", "/usr/bin/which", "perl", *(["3"] if shutil.which("cc") else [])]
        assert (await ask(session, WORKS)).splitlines() == lines
        for path in ("/etc/alternatives/mine", "/usr/share/mine", "/usr/include/mine"):
            assert "exit code 1" in await ask(session, f"echo > {path}")


async def run(session: Trajectory, command: str, **more: Any) -> Result:
    return await session.act(f"<bash>{command}</bash>", **more)


async def ask(session: Trajectory, command: str, **more: Any) -> str:
    result = await run(session, command, **more)
    assert result.error is None, result
    return said(result)


async def edit(session: Trajectory, kind: str, path: str, **arguments: Any) -> Result:
    call = {"name": "bash", "arguments": {"edit": kind, "path": path, **arguments}}
    return await session.act(f"<tool_call>{json.dumps(call)}</tool_call>")


async def test_the_shell_lives_from_command_to_command(session: Trajectory) -> None:
    await ask(session, "cd notes; x=5; export Y=6; f() { echo f $x; }; shopt -s extglob")
    assert await ask(session, "pwd | sed 's|.*/||'; f; bash -c 'echo $Y'") == "notes\nf 5\n6"
    assert await ask(session, "cat a.txt") == "one\ntwo\nthree"


async def test_the_exit_code_is_told(session: Trajectory) -> None:
    result = await run(session, "ls nothing")
    assert said(result).endswith("No such file or directory\n[exit code 2]")
    assert result.error is None
    assert result.metrics == {"exit_code": 2.0}
    assert (await run(session, "true")).metrics == {"exit_code": 0.0}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("echo out; echo err >&2; echo out", "out\nerr\nout"),
        ("cat", ""),
        ('read line; echo "[$line] $?"', "[] 1"),
        ("cat <<EOF\nhere $((6*7))\nEOF", "here 42"),
        ("echo 'it''s' \"a 'b'\" !x", "its a 'b' !x"),
        ("exec 0<&-; echo still here", "still here"),
        ("exec 8>&-; echo still here", "still here"),
        ("printf 'a\\0b'", "ab"),
        ("printf '\\xff\\n'", "\ufffd"),
        ("echo " + "x" * 200_000 + " | wc -c", "200001"),
        ('x=$(cat); echo "[$x]"', "[]"),
        ("# nothing", ""),
    ],
)
async def test_a_command_says(session: Trajectory, command: str, says: str) -> None:
    assert await ask(session, command) == says


@pytest.mark.parametrize("command", ["echo 'open", "for", "cat <<X\nnever closed"])
async def test_broken_syntax_costs_nothing(session: Trajectory, command: str) -> None:
    await ask(session, "x=5")
    await ask(session, command)
    assert await ask(session, "echo $x") == "5"


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 3", 3), ("exec true", 0), ("set -e; false", 1), ("kill -9 $$", 137)],
)
async def test_a_shell_that_ends_is_replaced_and_said_to_be(
    session: Trajectory, command: str, code: int
) -> None:
    await ask(session, "cd notes; x=5")
    text = await ask(session, command)
    assert f"[the shell ended with exit code {code}; its variables and jobs are gone" in text
    assert await ask(session, 'echo "[$x]"; cat a.txt') == "[]\none\ntwo\nthree"


async def test_output_cannot_end_a_command(session: Trajectory) -> None:
    """Neither on the pipe that commands have nor, by guessing, on the one that they have not."""
    text = await ask(session, "for i in 1 2 3 8 9 10 11 12; do echo x 0 / >&$i; done 2>/dev/null")
    assert "x 0 /" in text
    assert await ask(session, "echo next") == "next"


@pytest.mark.parametrize(
    "command",
    ["while :; do :; done", "sleep 600 | cat", "echo part; sleep 600; echo never", "wait"],
)
async def test_the_limit_interrupts_and_keeps_the_shell(session: Trajectory, command: str) -> None:
    await ask(session, "cd notes; x=5; sleep 600 &")
    result = await run(session, command, run_limit=0.4)
    assert result.error.kind is ToolErrorKind.TIMEOUT
    assert not result.error.session_lost
    assert "[stopped after 0.4 s; the shell goes on]" in said(result)
    assert ("part" in said(result)) == ("part" in command)
    text = await ask(session, "echo $x; ls; jobs")
    assert "5\na.txt\n[1]" in text
    assert "Running" in text


@pytest.mark.parametrize("command", [STUBBORN, "trap '' INT; sleep 600"])
async def test_what_ignores_the_interrupt_is_killed_with_the_shell(
    session: Trajectory, command: str
) -> None:
    await ask(session, "cd notes; x=5")
    result = await run(session, command, run_limit=1.0)
    assert result.error.kind is ToolErrorKind.TIMEOUT
    assert not result.error.session_lost
    assert "was killed with the shell; its variables and jobs are gone" in said(result)
    assert await ask(session, 'echo "[$x]"; cat a.txt') == "[]\none\ntwo\nthree"


async def test_cancel(session: Trajectory) -> None:
    await ask(session, "x=5")
    call = asyncio.create_task(run(session, "sleep 600"))
    await until(session.cancel, "the call has begun")
    assert (await call).error.kind is ToolErrorKind.CANCELLED
    assert await ask(session, "echo $x") == "5"


async def test_output_is_bounded_as_it_streams(session: Trajectory) -> None:
    result = await run(session, "head -c 50000000 /dev/zero | tr '\\0' 'x'; echo; echo end")
    text = said(result)
    assert result.truncated
    assert text.startswith("x" * KEPT)
    assert text.endswith(f"[the output was longer: {50_000_005 - KEPT} bytes are not shown]")
    assert len(text) < KEPT + 100


async def test_a_background_job_holds_no_command_up_and_its_output_is_bounded(
    session: Trajectory,
) -> None:
    await ask(session, "(while [ ! -e go ]; do sleep 0.01; done; echo late; touch done) &")
    assert "early" in await ask(session, "echo early")
    text = await ask(session, "touch go; while [ ! -e done ]; do sleep 0.01; done; echo after")
    assert sorted(text.split("\n")) == ["after", "late"]
    await ask(session, "rm done; (head -c 3000000 /dev/zero | tr '\\0' 'z'; touch done) &")
    result = await run(session, "while [ ! -e done ]; do sleep 0.01; done; echo")
    assert "zzz" in said(result)
    assert result.truncated


async def test_jobs_end_with_their_session(host: Host) -> None:
    session = Trajectory(host, "bash")
    marker = "600.123"
    await ask(session, f"sleep {marker} & (sleep {marker} &) ; nohup sleep {marker} &")

    def jobs() -> list[psutil.Process]:
        below = psutil.Process().children(recursive=True)
        return [p for p in below if marker in _command_line(p)]

    await until(lambda: len(jobs()) >= 3, "all have begun")
    running = jobs()
    await session.close()
    assert not psutil.wait_procs(running, timeout=20)[1]


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def test_finished_orphans_are_reaped(session: Trajectory) -> None:
    """More of them than the session may have processes."""
    for _ in range(4):
        assert await ask(session, "for i in {1..10}; do (true &); done; echo ok") == "ok"


async def test_a_fork_bomb_hurts_its_own_session_only(host: Host, session: Trajectory) -> None:
    other = Trajectory(host, "bash")
    assert await ask(other, "echo alive") == "alive"
    await run(session, ":(){ :|:& };:", run_limit=1.0)
    assert await ask(other, "echo alive") == "alive"
    await other.close()


async def test_the_sandbox_holds(session: Trajectory) -> None:
    for command in (
        "cat /etc/passwd",
        "ls /",
        "ls /proc",
        "ls ..",
        "echo > /dev/tcp/127.0.0.1/22",
        "mount -t tmpfs x notes",
        "unshare -U true",
    ):
        assert (await run(session, command)).metrics["exit_code"] != 0, command


async def test_editing(session: Trajectory) -> None:
    assert said(await edit(session, "view", ".")) == ".\n./notes/\n./notes/a.txt"
    assert said(await edit(session, "view", "notes/a.txt", view_range=[2, -1])) == (
        "     2\ttwo\n     3\tthree"
    )
    text = said(await edit(session, "str_replace", "notes/a.txt", old_str="two", new_str="2\n2.5"))
    assert "     3\t2.5" in text
    await edit(session, "insert", "notes/a.txt", insert_line=0, new_str="zero")
    assert await ask(session, "cat notes/a.txt") == "zero\none\n2\n2.5\nthree"
    await edit(session, "undo", "notes/a.txt")
    await edit(session, "undo", "./notes/../notes/a.txt")
    assert await ask(session, "cat notes/a.txt") == "one\ntwo\nthree"
    # The shell's directory is the editor's.
    await ask(session, "cd notes")
    await edit(session, "create", "deep/b.py", file_text="print(1)\n")
    assert await ask(session, "python3 deep/b.py; chmod +x deep/b.py") == "1"
    await edit(session, "str_replace", "deep/b.py", old_str="1", new_str="2")
    assert await ask(session, "stat -c %A deep/b.py") == "-rwxr-xr-x"
    await edit(session, "undo", "deep/b.py")
    await edit(session, "undo", "deep/b.py")
    assert (await run(session, "ls deep/b.py")).metrics["exit_code"] != 0


@pytest.mark.parametrize(
    ("kind", "arguments", "says"),
    [
        ("view", {"path": "/etc/passwd"}, "/etc/passwd: "),
        ("view", {"path": "pipe"}, "pipe is not a file"),
        ("view", {"path": "binary"}, "binary is not a text in UTF-8"),
        ("create", {"path": "notes/a.txt", "file_text": ""}, "notes/a.txt exists"),
        ("str_replace", {"path": "notes/a.txt", "old_str": "e", "new_str": ""}, "lines 1, 3, 3"),
        ("insert", {"path": "notes/a.txt", "insert_line": 9, "new_str": ""}, "has 3 lines"),
        ("create", {"path": "big", "file_text": "x" * 3_000_000}, ""),
    ],
)
async def test_an_edit_that_cannot_be_done_changes_nothing(
    session: Trajectory, kind: str, arguments: dict[str, Any], says: str
) -> None:
    await ask(session, "mkfifo pipe; printf '\\xff' > binary")
    result = await edit(session, kind, **arguments)
    if says:
        assert result.error.kind is ToolErrorKind.EXCEPTION
    assert says in said(result)
    assert await ask(session, "cat notes/a.txt; ls notes") == "one\ntwo\nthree\na.txt"


async def test_undo_keeps_what_the_shell_wrote_since(session: Trajectory) -> None:
    await edit(session, "insert", "notes/a.txt", insert_line=0, new_str="zero")
    await ask(session, "echo more >> notes/a.txt")
    result = await edit(session, "undo", "notes/a.txt")
    assert "has changed since" in said(result)
    assert "more" in await ask(session, "cat notes/a.txt")


@pytest.mark.parametrize("files", [{"../x": ""}, {"/x": ""}, {"x": 1}, ["x"], {"": ""}])
async def test_files_that_make_no_sense_are_refused(host: Host, files: Any) -> None:
    with pytest.raises(Refused) as failure:
        await Trajectory(host, "bash", {"files": files}).open()
    assert failure.value.reason is Reason.INVALID_REQUEST


async def test_a_folder_for_all_sessions_within_all_walls(
    tmp_path: Path, walls: dict[str, Any]
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "empty").mkdir()
    script = tmp_path / "bin" / "hello"
    script.write_text("#!/bin/bash\necho hello from $1\n", encoding="utf-8")
    script.chmod(0o755)
    (tmp_path / "link").symlink_to("bin/hello")
    tool = make_registered("bash", {"folder": tmp_path}, SandboxConfig(shards=1, ready=1, **walls))
    async with Host([tool]) as running:
        assert running.isolation == walls["isolation"]
        one = Trajectory(running, "bash", {"files": {"name": "one"}})
        assert await ask(one, "./link $(cat name); ls; rm -r bin") == (
            "hello from one\nbin\nempty\nlink\nname"
        )
        assert await ask(Trajectory(running, "bash"), "bin/hello two") == "hello from two"
        result = await run(one, STUBBORN, run_limit=1.0)
        assert "was killed with the shell" in said(result)
        assert await ask(one, "cat name") == "one"


FORGE = 'builtin() { command printf \'%%s\\0\' "$3" %s "$5" >&8; }; false'


async def test_a_forged_end_deceives_its_own_session_alone(host: Host, session: Trajectory) -> None:
    """Which is why no reward may be judged by an exit code of the policy's session."""
    assert said(await run(session, FORGE % 0)) == ""
    other = Trajectory(host, "bash")
    assert said(await run(other, "false")) == "[exit code 1]"
    forged = await run(other, FORGE % ("9" * 400), run_limit=0.2)
    # The policy's doing, and told to it: no failure of the service.
    assert forged.error.kind is ToolErrorKind.TIMEOUT
    assert "killed with the shell" in said(forged)
    assert await ask(other, "echo on") == "on"
    await other.close()
