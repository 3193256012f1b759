"""The common part of processes and commands on a machine.

A command starts
entry.py           starts each command
own_packages.py    files of a user that hide our packages
command_line.py    the common part of all command lines
stderr_log.py      logs of a server on standard error

It looks at the machine
run_folder.py      whether a run's folder can be written
packaged.py        files that come with the package
sockets.py         where Unix sockets lie
holder.py          the process that listens at a port
machine_memory.py  memory for one rank

It runs
loop.py            runs a server on its event loop
server_loop.py     that event loop: uvloop with its own way to start programs
backoff.py         pauses before retries
metrics_page.py    a Prometheus page for processes without a web server

It ends
stop_signals.py    the signals that end a server
daemon.py          threads that never keep a process alive
parent.py          a process that dies with its parent
"""
