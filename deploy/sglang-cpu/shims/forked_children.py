"""SGLang's scheduler and detokenizer begin as forks of the server.

SGLang spawns them: each is a new Python that imports torch and SGLang again, which is most of the
CPU time of a start (measured: 45 s of CPU until the server is ready, 19 s with forks). Spawning is
for CUDA, which does not survive a fork. On a CPU, and before the server has opened a socket or
started a model, a fork is the same process without the imports.

It is an SGLang plugin (see the entry point in the dist-info folder beside it). It acts only in the
server's own process, which the launcher names in the environment. Each fork ends with the server,
as die_with_server does for spawned processes.
"""

import multiprocessing
import os

from die_with_server import SERVER_PID, bind


def register() -> None:
    """The plugin's entry point; SGLang calls it in each of its processes."""
    server = os.getpid()
    if os.environ.get(SERVER_PID) != str(server):
        return
    choose = multiprocessing.set_start_method

    def choose_fork(method: str | None, force: bool = False) -> None:
        choose("fork" if method == "spawn" else method, force)

    multiprocessing.set_start_method = choose_fork
    os.register_at_fork(after_in_child=lambda: bind(server))
