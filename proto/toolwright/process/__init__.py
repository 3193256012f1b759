"""What processes and commands share of running on a machine.

entry.py         the way into each command
command_line.py  what all command lines have in common
loop.py          runs a server on its event loop
server_loop.py   that event loop: uvloop's, but for the programs that it starts
metrics_page.py  a page for Prometheus where there is no web server
holder.py        who listens at a port
own_packages.py  files of a user that hide our packages
sockets.py       where Unix sockets lie
run_folder.py    whether a run's folder can be written
packaged.py      where what comes with the package lies
"""
