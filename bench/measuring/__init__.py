"""What all instruments share.

command   options, errors and tables of a command line
report    rows, machine and versions, and their JSON
spread    percentiles of latencies
servers   start of a server, and its address
usage     CPU time and memory of process trees
"""
