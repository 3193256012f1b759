"""Time and chance of a simulated run: an event loop on a virtual clock."""
