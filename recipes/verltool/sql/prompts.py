"""The words of VerlTool's SQL task (arXiv:2509.01055), in our own: what the policy is told.

A prompt has {question}, and where the task's metadata describe the database {engine}, {schema} and
{knowledge}. Both kinds have {turns}, how many queries there are.
"""

from __future__ import annotations

RULES = """\
You are given a question about a database and answer it with one SQL statement. You may query the \
database before you answer.

- Begin every turn with your reasoning, between <think> and </think>.
- To look at data, end a turn with one statement between <sql> and </sql>. Its result comes \
back between <observation> and </observation>, followed by the number of turns that are left to you.
- You have {turns} such queries at most. Check there what you are not sure of: how values are \
spelt, which columns join, what a result looks like.
- To answer, end a turn with one statement between <solution> and </solution>. It is run once, and \
its rows have to be exactly what the question asks for: no more columns, and in the order that the \
question asks for, if it asks for one.
- Each turn has exactly one of the two blocks, and nothing after it."""

DESCRIBED = """

Database engine: {engine}

Schema:
{schema}

External knowledge: {knowledge}

Question: {question}"""
"""Of a task whose metadata have a schema."""

PUBLISHED = """

{question}"""
"""Of a task whose question brings its schema along, as some published sets do."""

ENGINE = "SQLite"
NO_KNOWLEDGE = "none"
