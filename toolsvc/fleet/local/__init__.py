"""Hosts in processes on this machine: `toolsvc serve --workers N`.

serving.py   the service: where workers listen, and what each of them is
child.py     one worker as the front has it: started, asked, ended
messages.py  what the two say to each other, over a pipe
worker.py    the process itself
door.py      ToolService at the worker's own endpoint

Clients call a session at its worker's own endpoint. All else that they ask there the worker has the
front answer, so the front knows of every session, and an id is open at one worker at most.
"""
