"""Files of a recipe as programs: `python -m toolwright.script FILE.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest

from toolwright.script import run

pytestmark = pytest.mark.quick


def test_parameters_are_options() -> None:
    found: list[object] = []

    def main(
        file: Annotated[Path, "what is read"],
        *,
        output: Path,
        split: Literal["training", "heldout"] = "training",
        share: float = 0.5,
        gold: Path | None = None,
        strict: bool = False,
        shuffle: Annotated[bool, "100% of the rows"] = True,
        level: Literal[1, 2] = 1,
    ) -> None:
        found.extend((file, output, split, share, gold, strict, shuffle, level))

    run(main, ["a.txt", "--output", "out", "--split", "heldout", "--share", "0.25", "--strict"])
    assert found == [Path("a.txt"), Path("out"), "heldout", 0.25, None, True, True, 1]
    found.clear()
    run(main, ["a.txt", "--output", "out", "--gold", "g", "--no-shuffle", "--level", "2"])
    assert found == [Path("a.txt"), Path("out"), "training", 0.5, Path("g"), False, False, 2]
    with pytest.raises(SystemExit, match="0"):
        run(main, ["--help"])
    for words in (["a.txt"], ["a.txt", "--output", "out", "--split", "other"]):
        with pytest.raises(SystemExit):
            run(main, words)


def test_a_file_of_a_package_runs_from_any_folder(tmp_path: Path) -> None:
    """A file in the present folder that is called like one of our packages hides nothing."""
    world = tmp_path / "recipe/world"
    world.mkdir(parents=True)
    for folder in (tmp_path / "recipe", world):
        (folder / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "recipe/words.py").write_text("WORD = 'hello'\n", encoding="utf-8")
    (world / "make.py").write_text(
        "from tasks.worlds.rounds import rounds\nfrom ..words import WORD\n\n\n"
        "def main(*, times: int = 1) -> None:\n    print(WORD * times)\n",
        encoding="utf-8",
    )
    (tmp_path / "tasks.py").write_text("1 / 0\n", encoding="utf-8")
    command = [sys.executable, "-m", "toolwright.script", "recipe/world/make.py", "--times", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "hellohello\n"), done.stderr
    command[3] = "recipe/words.py"
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "has no function main" in done.stderr
