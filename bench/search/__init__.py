"""How soon 256 queries at once are answered: the search tool over a generated corpus.

Corpus and vectors come from a seed; the index is built by `toolsvc index build` and served by
`toolsvc serve`, each a process of its own; the queries go over gRPC.
"""
