"""The `bench` command: one subcommand per instrument.

Owns the command line only. Anything the user can mend ends with one sentence on stderr and exit
code 2; a port that is taken ends with exit code 1.
"""

from __future__ import annotations

from bench.gpu.command import gpu
from bench.makespan.command import engine
from bench.memory.command import memory
from bench.retokenisation.command import retokenisation
from bench.rollouts.command import rollouts
from bench.scripted_sampler import scripted_sampler
from bench.search.command import search
from bench.simulate.command import simulate
from bench.step import step
from bench.tools.command import tools
from bench.view.command import view
from toolwright.process.command_line import command_line, start

app = command_line("bench", help="Load generation, faults and the scripted sampler.")
app.command("scripted-sampler")(scripted_sampler)
app.command("engine")(engine)
app.command("gpu")(gpu)
app.command("memory")(memory)
app.command("retokenisation")(retokenisation)
app.command("rollouts")(rollouts)
app.command("search")(search)
app.command("simulate")(simulate)
app.command("step")(step)
app.command("tools")(tools)
app.command("view")(view)


def main() -> None:
    """Entry point of the `bench` command."""
    start(app, "bench", extra="bench")


if __name__ == "__main__":
    main()
