"""What the engine offers: the line to it, one step's groups, and which groups were used before."""
