"""The interfaces of a host: gRPC, and HTTP beside it.

`service` is ToolService method by method, `servicer` the part that needs no session, and
`call_stream` its stream of calls. `wire` converts protobuf to the host's types. `metrics` and
`metrics_server` are for HTTP. `client` is a client for a terminal or another agent.
"""
