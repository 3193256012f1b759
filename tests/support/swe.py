"""An operator's repositories and verifications, and a policy that works on them by the tool."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.repository import FIX, git, make_repository, make_verification
from tests.support.trajectory import Trajectory, said
from toolsvc.host.host import Host
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.swe.options import SweOptions
from toolsvc.tools.swe.swe_tool import SweTool
from toolsvc.types import Result

SMALL = SandboxConfig(shards=1, ready=2, memory_bytes=192 * MIB)


class Source:
    """What the operator has: a repository in four shapes, and verifications."""

    def __init__(self, folder: Path) -> None:
        self.repositories = folder / "repositories"
        self.verifications = folder / "verifications"
        self.buggy, self.fixed = make_repository(self.repositories / "bill")
        git(self.repositories / "bill", "bundle", "create", "-q", "../bill.bundle", "--all")
        for name, options in (("bill.tar.gz", ()), ("plain.tar", ("--exclude=.git",))):
            command = ["tar", "-caf", name, *options, "bill"]
            subprocess.run(command, cwd=self.repositories, check=True)
        make_verification(self.verifications / "bill-1")
        make_verification(self.verifications / "impatient", seconds=2)
        self.image = folder / "standin" / "images" / "bill"
        git(folder, "clone", "-q", str(self.repositories / "bill"), str(self.image))
        git(self.image, "checkout", "-q", self.buggy)
        (self.image.parent / "empty").mkdir()

    def task(self, **more: str) -> dict[str, str]:
        task = {"repository": "bill", "commit": self.buggy, "verification": "bill-1"}
        return {**task, **more}


@contextlib.asynccontextmanager
async def serving(source: Source, **options: Any) -> AsyncIterator[Host]:
    given = {"repositories": source.repositories, "verifications": source.verifications, **options}
    async with Host([SweTool(SweOptions.model_validate(given), SMALL)]) as running:
        yield running


def call(name: str, **parameters: object) -> str:
    lines = [f"<parameter={key}>{value}</parameter>" for key, value in parameters.items()]
    return "\n".join((f"<function={name}>", *lines, "</function>"))


async def bash(session: Trajectory, command: str) -> str:
    return said(await session.act(call("execute_bash", command=command)))


async def edit(session: Trajectory, command: str, path: str, **more: object) -> Result:
    return await session.act(call("file_editor", command=command, path=path, **more))


async def fix(session: Trajectory) -> None:
    old, new = FIX
    result = await edit(session, "str_replace", "bill.py", old_str=f"\n{old}", new_str=f"\n{new}")
    assert result.error is None, result


async def submit(session: Trajectory) -> Result:
    result = await session.act(call("submit"))
    assert (result.done, said(result), result.error) == (True, "Submitted.", None)
    return result
