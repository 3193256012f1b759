"""A run's policy without torch: its folder, and what processes must agree on before they share it.

beginning.py         the weights that a run begins with
model_folder.py      what two processes must find the same in a policy's folder
fingerprint.py       what engine and learner must agree on before the first group
tiny_policy.py       makes a policy's folder from nothing
tokenizer_folder.py  writes a policy's tokenizer
"""
