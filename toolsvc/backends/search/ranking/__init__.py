"""Which passages fit a query best: by words (`bm25`), by vectors (`dense`, made by an `encoder`),
and by several rankings together (`fusion`).
"""
