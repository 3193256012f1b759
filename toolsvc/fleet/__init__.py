"""Hosts of sessions behind one address: `toolsvc serve --workers N`, and `--backend ray`.

serving.py    the service: its front, its hosts, its end
front.py      ToolService as clients meet it
placing.py    from a wish for a session to its host
sessions.py   which host a session is on, and what became of it; pure
resources.py  what hosts have and sessions take; pure
shared.py     the hosts that sessions share, replaced when they are lost
own_hosts.py  the hosts of one session each
starting.py   from a wish for a host to one that answers
watching.py   what becomes of a host and the sessions on it
link.py       one host as the front has it: gRPC to it, and whether it lives
hosts.py      what every kind of host is to its front
running.py    a host, where it runs
local/        hosts in processes on this machine, which clients call at endpoints of their own
ray/          hosts in actors on a Ray cluster, which the front alone speaks to

Invariants
- A session is on one host from its opening to its end, and it never moves. The front alone places
  sessions, and all that opens, forks or closes one goes through it.
- A host that dies takes its own sessions with it and no others: each is SESSION_LOST from then on.
- What the front has given up is never asked again, whether it lives or not.
- No host outlives its front.
"""
