"""Two ranks of a learner, of which the second alone is told to stop: for `test_stop`.

`python -m tests.integration.learner.stop_main MODEL FOLDER` writes FOLDER/rank-N: how it ended.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

from learner.ranks import device

device.install()

from console.machine.ready import free_ports  # noqa: E402
from learner import run as loop  # noqa: E402
from learner.errors import StoppedError  # noqa: E402
from learner.loop import step as stepping  # noqa: E402
from learner.stop import Stop  # noqa: E402
from tests.integration.learner.fake_engine import FakeEngine  # noqa: E402
from tests.integration.learner.forked import together  # noqa: E402
from tests.integration.learner.test_run import recipe_for  # noqa: E402

TOLD_AT = 2
"""Which step's training is under way when the second rank is told."""


def live(model: Path, folder: Path, rank: int, port: int) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    real, trained = stepping.improve, 0

    def improve(*arguments: object, **named: object) -> object:
        nonlocal trained
        trained += 1
        if rank == 1 and trained == TOLD_AT:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments, **named)

    stepping.improve = improve  # type: ignore[assignment]
    stop = Stop()
    try:
        with stop.listening(print):
            home = folder / f"recipe-{rank}"
            home.mkdir()
            engine = FakeEngine()  # the second rank's is never asked
            changes = {"run.folder": f'"{folder}/run"'}
            loop.run(recipe_for(home, model, engine, **changes), stop)
    except StoppedError as error:
        (folder / f"rank-{rank}").write_text(f"{error.status} {error}", encoding="utf-8")


def main(model: Path, folder: Path) -> None:
    (port,) = free_ports(1)
    together([partial(live, model, folder, rank, port) for rank in (0, 1)])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
