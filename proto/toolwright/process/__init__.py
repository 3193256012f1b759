"""The common part of processes and commands on a machine.

entry.py           starts each command
command_line.py    the common part of all command lines
loop.py            runs a server on its event loop
server_loop.py     that event loop: uvloop with its own way to start programs
backoff.py         pauses before retries
daemon.py          threads that never keep a process alive
metrics_page.py    a Prometheus page for processes without a web server
holder.py          the process that listens at a port
machine_memory.py  memory for one rank
own_packages.py    files of a user that hide our packages
sockets.py         where Unix sockets lie
run_folder.py      whether a run's folder can be written
packaged.py        files that come with the package
"""
