"""The server's main module: SGLang's own, which says how far it is.

`python -m announced_server SGLANG_FLAGS`, as `serve.py` becomes it. Standard output gets a line
every EVERY_S while it loads and "serving MODEL at URL" once it answers. Warnings that every start
on a CPU gives, and that say nothing of the run, are left out by their logger and their beginning,
each for a reason; an error is never left out, nor a warning that is not in the list.
"""

import functools
import logging
import os
import sys
import threading
import time
import warnings

EVERY_S = 10.0

MODELS_OF_GPUS = ("falcon_mamba", "grok", "inkling", "mamba", "midashenglm")
"""Their modules need packages that are not installed; the architectures that we sample do not."""

MEANINGLESS = (
    # Flags of ours say so: there is no GPU.
    (
        "sglang.srt.arg_groups.attention_hook",
        "Cuda graph is disabled because of using torch native",
    ),
    ("sglang.kernels.jit.utils.arch", "Cannot detect CUDA architecture"),
    # It raises its own limit of open files, and the one that it has is larger.
    ("sglang.srt.utils.common", "Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit"),
    # Module of the servers with several processes that share one model.
    ("sglang.srt.distributed.bootstrap", "init_cpu_threads_env and shared memory based AllReduce"),
    # The engine renders chats and speaks token ids.
    ("sglang.srt.parser.template_manager", "No HuggingFace chat template found"),
    # Endpoints that this project never calls: /v1/rerank and /v1/responses.
    ("sglang.srt.entrypoints.openai.serving_rerank", "Failed to get yes/no token IDs dynamically"),
    ("sglang.srt.entrypoints.openai.serving_rerank", "Using fallback token IDs for yes/no"),
    ("sglang.srt.entrypoints.http_server", "OpenAI Responses API (/v1/responses) disabled"),
    *(
        (
            "sglang.srt.models.registry",
            f"Ignore import error when loading sglang.srt.models.{name}:",
        )
        for name in MODELS_OF_GPUS
    ),
)
"""(logger, beginning of a warning)."""

MEANINGLESS_IN_PYTHON = (
    "Only CUDA, HIP and XPU support AWQ currently",
    "Only CUDA, MUSA and NPU support GGUF quantization currently",
    "Triton is not supported on current platform, roll back to CPU",
    "ORJSONResponse is deprecated",  # FastAPI to SGLang, once an answer of a door is large
)


def leaves_out(logger: str, beginning: str, record: logging.LogRecord) -> bool:
    """Whether a record is the one that is meant."""
    return (
        record.name == logger
        and record.levelno < logging.ERROR
        and record.getMessage().startswith(beginning)
    )


def leave_out_the_meaningless() -> None:
    """For this process and those that it forks."""
    for logger, beginning in MEANINGLESS:
        meant = functools.partial(leaves_out, logger, beginning)
        logging.getLogger(logger).addFilter(lambda record, meant=meant: not meant(record))
    for beginning in MEANINGLESS_IN_PYTHON:
        warnings.filterwarnings("ignore", message=beginning)


class Announcement:
    """Says how long it takes, until `serving` says that it is over."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._over = threading.Event()
        threading.Thread(target=self._still, name="announcement", daemon=True).start()

    def serving(self, model: str, host: str, port: int) -> None:
        self._over.set()
        where = f"[{host}]" if ":" in host else host
        _say(f"serving {model} at http://{where}:{port} (after {self._passed():.0f} s)")

    def _passed(self) -> float:
        return time.monotonic() - self._began

    def _still(self) -> None:
        while not self._over.wait(EVERY_S):
            _say(f"still loading, {self._passed():.0f} s so far")


def _say(sentence: str) -> None:
    # One write: a child that is forked meanwhile inherits no half of a buffer.
    os.write(1, f"serve.py: {sentence}\n".encode())


def main(arguments: list[str]) -> None:
    announcement = Announcement()
    leave_out_the_meaningless()
    from sglang import launch_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    load_plugins()
    told = prepare_server_args(arguments)
    told.resolve_once()
    from sglang.srt.entrypoints import http_server

    serving = functools.partial(announcement.serving, told.model_path, told.host, told.port)
    http_server.launch_server = functools.partial(
        http_server.launch_server, launch_callback=serving
    )
    try:
        launch_server.run_server(told)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    main(sys.argv[1:])
