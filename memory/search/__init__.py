"""How tools are found.

embedding.py    texts to vectors, by what a recipe calls it
sentences.py    all-MiniLM-L6-v2, or another sentence-transformers model
text.py         how alike two texts are by their words
ranking.py      the hybrid score, and the best by it
traversal.py    the walk along the graph
graphrag.py     the other score: words, meaning, graph, community, history
communities.py  clusters of tools
retrieval.py    one version of the memory, ready to be asked
"""
