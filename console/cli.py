"""The `toolwright` command: what can be typed, and which module does it.

A command's module imports what it needs when the command runs, so that `toolwright --help` is
quick.
"""

from __future__ import annotations

from console.commands import ablate, doctor, run, status, view
from console.commands.compare import compare
from console.commands.init import init
from console.commands.install_sampler import install_sampler
from console.commands.report import report
from console.commands.stop import stop
from console.commands.track import track
from toolwright.process.command_line import command_line, start

app = command_line(
    "toolwright",
    help="Starts, watches, ends and reports runs of agents that are trained with their tools.",
)

app.command()(init)
app.command(epilog=run.EPILOG)(run.run)
app.command(epilog=view.EPILOG)(view.view)
app.command(epilog=status.EPILOG)(status.status)
app.command()(stop)
app.command()(report)
app.command()(compare)
app.command(epilog=ablate.EPILOG)(ablate.ablate)
app.command()(track)
app.command(epilog=doctor.EPILOG)(doctor.doctor)
app.command("install-sampler")(install_sampler)


def main() -> None:
    """The `toolwright` entry point."""
    start(app, "toolwright", extra="console")


if __name__ == "__main__":
    main()
