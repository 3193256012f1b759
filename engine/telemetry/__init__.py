"""What the engine tells about itself: metrics, logs, lines for people."""
