"""The `bench` command: one subcommand for each instrument.

Owns the command line only. An error that the user can fix is one sentence on stderr. The exit code
is 2 for options that do not fit, and 1 for a failure, such as a port in use.
"""

from __future__ import annotations

from bench.engine.command import engine
from bench.gpu.command import gpu
from bench.ingress.command import ingress
from bench.kv.command import kv
from bench.measuring.command import one_sentence_errors
from bench.memory.command import memory
from bench.retokenisation.command import retokenisation
from bench.scripted_sampler import scripted_sampler
from bench.search.command import search
from bench.simulate.command import simulate
from bench.step import step
from bench.studies.command import study
from bench.tools.command import tools
from bench.view.command import view
from toolwright.process.command_line import command_line, start

app = command_line("bench", help="Load generation, faults and the scripted sampler.")
for command in (
    scripted_sampler, engine, gpu, ingress, kv, memory, retokenisation, search, simulate, step,
    study, tools, view,
):  # fmt: skip
    app.command(command.__name__.replace("_", "-"))(one_sentence_errors()(command))


def main() -> None:
    """Entry point of the `bench` command."""
    start(app, "bench", extra="bench")


if __name__ == "__main__":
    main()
