"""Hosts in actors on a Ray cluster: `toolsvc serve --backend ray`.

- serving.py: the service, with its checks of the cluster and of its tools
- cluster.py: the parts of Ray that are used
- own_cluster.py: a cluster on this machine alone
- nodes.py: whether the nodes have room for the hosts; pure
- actor.py: a host in an actor
- certificate.py: the certificate of such a host

The front speaks gRPC to the hosts, not Ray, and clients speak to the front alone.
"""
