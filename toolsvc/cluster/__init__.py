"""Session hosts on a Ray cluster, behind one address: `toolsvc serve --backend ray`.

serving.py      the service: its address, its hosts, its end
front.py        ToolService as clients meet it; passes everything on to the host that it belongs to
fetching.py     a blob of a result, from whichever host holds it
placing.py      from a wish for a session to its host
sessions.py     which host a session is on, and what became of it; pure
resources.py    what hosts have and sessions take; pure
fleet.py        the hosts that sessions share, replaced when they are lost
own_hosts.py    the hosts of one session each
starting.py     from an actor to a host that answers
watching.py     what becomes of a host and the sessions on it
link.py         one host as the front has it: gRPC to it, and whether it lives
ray_cluster.py  Ray, as far as it is needed
own_cluster.py  and a cluster on this machine alone
host_actor.py   what runs in an actor: an ordinary host with an ordinary gRPC server

Invariants
- A session is on one host from its opening to its end, and nothing else knows where: clients speak
  to the front alone, and the front speaks gRPC to the hosts, not Ray.
- A host that dies takes its own sessions with it and no others: each is SESSION_LOST from then on.
- What the front has given up is never asked again, whether it lives or not.
"""
