"""SGLang servers as the engine sees them: wire, stops, client, pool, weight control."""
