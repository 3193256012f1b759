"""Hosts in actors on a Ray cluster: `toolsvc serve --backend ray`.

- serving.py: the service, with its checks of the cluster and of its tools
- cluster.py: the fleet's words for `toolwright.cluster`, which calls Ray
- own_cluster.py: a cluster on this machine alone
- nodes.py: whether the nodes have room for the hosts; pure
- actor.py: a host in an actor

The front speaks gRPC to the hosts, not Ray, and clients speak to the front alone.
"""
