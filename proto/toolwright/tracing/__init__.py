"""Traces: ids of trajectories' spans, spans in our words, and how OTLP writes them."""
