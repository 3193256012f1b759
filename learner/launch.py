"""torchrun that ends with the learner's own exit status: `python -m learner.launch`.

Takes what torchrun takes: `python -m learner.launch --nproc-per-node 8 -m learner.cli run RECIPE`.
It is torchrun, in this process, so signals and a pod's first process are as with torchrun itself.
Where rank 0 is among its ranks and ended with a sentence, the sentence is the last line and the
status is rank 0's. Elsewhere, and where rank 0 died without a word, it is 1.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from learner.ending import ENDED, told

SIGNALLED = 128


def main() -> None:
    """Runs torchrun with this process's arguments."""
    with tempfile.TemporaryDirectory(prefix="learner-launch-") as folder:
        file = Path(folder) / "ended"
        os.environ[ENDED] = str(file)
        try:
            torchrun.main()
        except (ChildFailedError, SignalException) as error:
            ended = told(file)
            if ended is not None:
                status, sentence = ended
                print(f"learner: {sentence}", file=sys.stderr)
                sys.exit(status)
            print(error, file=sys.stderr)
            sys.exit(SIGNALLED + error.sigval if isinstance(error, SignalException) else 1)


if __name__ == "__main__":
    main()
