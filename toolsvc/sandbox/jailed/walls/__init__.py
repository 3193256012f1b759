"""What separates a session from the others and from the host.

`kernel` asks for it, `bpf` makes filters of `syscalls`, `confine` puts a child behind them, `homes`
gives it a folder of its own.
"""
