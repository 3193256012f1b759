"""Hosts of sessions behind one address: `toolsvc serve --workers N`, and `--backend ray`.

- serving.py: the service: its start, its front, its hosts, its end
- front.py: ToolService for clients
- placing.py: from a request for a session to its host
- sessions.py: which host a session is on, and how it ended; pure
- resources.py: the resources that hosts have and sessions take; pure
- shared.py: the hosts that sessions share; a lost host is replaced
- own_hosts.py: the hosts of one session each
- starting.py: from a request for a host to a host that answers
- watching.py: watches a host and the sessions on it
- link.py: the front's connection to one host
- hosts.py: the interface between a host and its front
- running.py: a host in its own process
- local/: hosts in processes on this machine, which clients call at their own endpoints
- ray/: hosts in actors on a Ray cluster, which only the front calls

Invariants
- A session is on one host from its opening to its end, and it never moves. Only the front places
  sessions. Every request that opens, forks or closes a session goes through it.
- A host that dies takes its own sessions with it and no others: each is SESSION_LOST from then on.
- The front never calls a host again after giving it up, whether the host lives or not.
- No host outlives its front.
"""
