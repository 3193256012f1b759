"""`python -m toolwright.python_environment`: what it makes, finishes and leaves alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from toolwright.python_environment import READY, UNFINISHED, main


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    file = tmp_path / "server.txt"
    file.write_text("# no packages\n", encoding="utf-8")
    return file


@pytest.mark.slow
def test_an_unfinished_environment_is_made_again_and_its_programs_start(
    requirements: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run/server"
    output.mkdir(parents=True)
    for name in (UNFINISHED, "half of a package"):
        (output / name).touch()
    main(requirements, output=output)
    assert not (output / UNFINISHED).exists() and not (output / "half of a package").exists()
    said = subprocess.run([output / "bin/pip", "--version"], capture_output=True, text=True)
    assert (said.returncode, str(output) in said.stdout) == (0, True), said.stderr
    assert (output / READY).read_text(encoding="utf-8") == requirements.read_text(encoding="utf-8")
    capsys.readouterr()
    main(requirements, output=output)
    assert "already" in capsys.readouterr().out


@pytest.mark.slow
def test_an_environment_without_its_packages_is_not_ready(tmp_path: Path) -> None:
    requirements = tmp_path / "server.txt"
    requirements.write_text(f"{tmp_path}/no-such-package.whl\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="pip could not install"):
        main(requirements, output=tmp_path / "server")
    assert (tmp_path / "server" / UNFINISHED).exists()
    assert not (tmp_path / "server" / READY).exists()


@pytest.mark.quick
@pytest.mark.parametrize("name", [READY, "pyvenv.cfg"])
def test_another_folder_stays_as_it_is(requirements: Path, tmp_path: Path, name: str) -> None:
    output = tmp_path / "server"
    output.mkdir()
    (output / name).write_text("other\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="exists, made from something else: remove it"):
        main(requirements, output=output)
    assert [path.name for path in output.iterdir()] == [name]


@pytest.mark.quick
def test_a_missing_requirements_file_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"server\.txt cannot be read"):
        main(tmp_path / "server.txt", output=tmp_path / "server")
    assert not (tmp_path / "server").exists()
