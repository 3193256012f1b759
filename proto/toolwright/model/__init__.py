"""A run's policy without torch: its folder, and the agreement of processes on it.

beginning.py         the weights that a run begins with
model_folder.py      tokenizer, template and shape, and their hashes
learner_memory.py    memory of a learner rank, by arithmetic
fingerprint.py       the settings that engine and learner must share
tiny_policy.py       makes a policy's folder from nothing
tokenizer_folder.py  writes a policy's tokenizer
"""
