"""The memory's gRPC edge.

wire.py      protobuf to the memory's words and back
service.py   MemoryService
serving.py   one process that serves a memory
"""
