"""Traces: ids of trajectories' spans, spans in our words, and what OTLP and Jaeger make of them."""
