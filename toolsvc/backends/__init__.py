"""What several tools ask for their answers: language models and search indexes.

`chat_model` asks a model within a `budget`, `cache` and `single_flight` let an answer be paid for
once. `search` is retrieval over a corpus.
"""
