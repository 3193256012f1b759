"""Plays outside agents against the real engine and the ingress's own calls, with kills and cuts.

plan        a workload and its faults, from a seed
http_half   the HTTP worker without sockets
agent_host  the real agent host without processes
agents      agents that edit, fork, retry and run calls in parallel
run         one run, and what it must keep
"""
