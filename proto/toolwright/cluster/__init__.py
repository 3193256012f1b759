"""Ray clusters, as tool services and engines use them.

- actors.py: connecting, nodes, and the life of an actor
- certificate.py: a self-signed certificate, which Ray brings to the processes that trust it

Ray starts and ends processes and reports their death. Data goes over gRPC.
"""
