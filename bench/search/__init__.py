"""`bench search`: latency of the search tool under 256 queries at once, over a generated corpus.

Corpus and vectors come from a seed. `toolsvc index build` builds the index and `toolsvc serve`
serves it, each in a process of its own. The queries go over gRPC.
"""
