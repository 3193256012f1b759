"""SGLang servers as the engine sees them: wire, stops, one client, the pool, weight control."""
