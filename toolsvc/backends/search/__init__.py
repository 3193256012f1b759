"""Retrieval over a fixed corpus: what stands behind the `search` tool.

corpus -> build (ranking: bm25, encoder, dense) -> index folder -> index -> batcher -> the tool

It knows neither sessions nor calls nor protobuf.
"""
