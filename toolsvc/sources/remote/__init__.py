"""Tools that another service serves: `grpc:ADDRESS`.

remote_tool.py   the source, and one tool of the other service as a tool of ours
session.py       a session there, which several of our tools share
service.py       the other service: its channel, its leases
wire.py          its messages in our words
"""
