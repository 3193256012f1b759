"""`bench ingress`: what the ingress adds to a model call of an outside agent.

traffic           how agents talk
policy            a tokenizer that encodes as a published one does
sampler           the scripted sampler, in a process of its own
agents            agents that stream chat completions
measure           one run of engine, ingress and sampler, and its figures
scripted_engine   the engine's half, scripted: dialects are tested without an engine
"""
