"""The engine's half of the ingress, scripted: agents and dialects are tested without an engine."""
