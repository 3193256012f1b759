"""What every process is made of: its command line, its event loop, its place on this machine.

entry.py         the way into each command
command_line.py  what all command lines have in common
loop.py          runs a server on its event loop, which is server_loop.py's
metrics_page.py  a page for Prometheus where there is no web server
holder.py        who listens at a port
run_folder.py    whether a run's folder can be written
packaged.py      where what comes with the package lies
sampler_home.py  where SGLang's environment is
"""
