"""Where bytes that a stranger wrote are parsed: images, videos, web pages, archives.

`pool` is what a tool holds: `places` says whose job is next, and a job is sent to the `nursery`, a
process that has imported the parser and nothing else. The nursery forks a process for each job;
`child` is that process: it gives up all that it could do, then parses, answers and ends. `calls`
are the system calls that it keeps, `errors` what can come of a job.

A parser is a module with two functions:

    def rehearse() -> None             uses every part once: after it no file can be opened
    def work(request: str, file: BinaryIO) -> bytes

`request` is the service's own word, `file` the stranger's bytes. What `work` answers is believed as
little as the file was: the tool checks it.
"""
