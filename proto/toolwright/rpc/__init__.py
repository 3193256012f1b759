"""gRPC as every Toolwright process speaks it: servers, channels, typed errors, retries."""
