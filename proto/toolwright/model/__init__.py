"""A policy's folder as several processes see it, without torch.

beginning.py     the weights that a run begins with
model_folder.py  what two processes must find the same in a folder
fingerprint.py   what they must agree on before the first group
tiny_policy.py   makes a folder from nothing
"""
