"""How the host is spoken to: gRPC, and the HTTP faces beside it.

`service` is ToolService method by method, `servicer` what of it needs no session, `call_stream` its
stream of calls, `wire` the one place where protobuf becomes the host's words. `http_server`,
`metrics` and `metrics_server` are for those who speak HTTP. `client` is the other side: a service
as a terminal or another agent uses it.
"""
