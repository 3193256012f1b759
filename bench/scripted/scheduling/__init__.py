"""When the scripted sampler's replies grow: all of them by one timer, alone or on a modelled GPU.

generation.py    one reply in flight
timing.py        the pace of a reply that has the server to itself
due_chunks.py    the next chunk of each reply, by time
scheduler.py     the replies in flight and their timer; pauses, aborts and updates
batch.py         a modelled GPU: its queue, its prefills, and the batch that decodes
prefix_cache.py  that GPU's prefix cache
memory.py        memory that a client releases and resumes
"""
