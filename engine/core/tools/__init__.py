"""Tool services over gRPC: sessions, calls, leases, and the services that the engine starts."""
