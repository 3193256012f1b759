"""Hosts in actors on a Ray cluster: `toolsvc serve --backend ray`.

serving.py      the service: what is asked of the cluster, and what of its tools
cluster.py      Ray, as far as it is needed
own_cluster.py  and a cluster on this machine alone
nodes.py        whether the nodes can hold what is wanted of them; pure
actor.py        what runs in an actor
certificate.py  what it shows its front

The front speaks gRPC to the hosts, not Ray, and clients speak to the front alone.
"""
