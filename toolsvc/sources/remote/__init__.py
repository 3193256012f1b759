"""Tools that another service serves: `grpc:ADDRESS`.

- remote_tool.py: the source, and one tool of the other service as a tool of this service
- session.py: a session there, which several tools of this service share
- service.py: the other service: its channel, its leases
- wire.py: converts its messages
"""
