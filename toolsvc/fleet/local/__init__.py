"""Hosts in processes on this machine: `toolsvc serve --workers N`.

serving.py   the service: where workers listen, and what each of them is
child.py     one worker as the front has it: its start, its answers, its end
messages.py  the lines between the two, over a pipe
worker.py    the process itself
endpoint.py  ToolService at the worker's own endpoint

Clients call a session at its worker's own endpoint; the front answers every other request there. So
the front knows every session, and an id is open at one worker at most.
"""
