"""How tools are found.

- embedding.py: from texts to vectors, by the embedder's name
- described.py: which words of a tool are embedded
- sentences.py: all-MiniLM-L6-v2, or another sentence-transformers model
- text.py: similarity of texts by their words
- ranking.py: the hybrid score, and the best tools by it
- traversal.py: the walk along the graph
- graphrag.py: the other score: words, meaning, graph, community, history
- communities.py: clusters of tools
- retrieval.py: one version of the memory, ready for questions
"""
