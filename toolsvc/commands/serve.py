"""`toolsvc serve`: the command, and which kind of service its options make.

The options are the fields of `ServiceConfig`. An error before the service listens is one sentence
on standard error and exit code 1."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from annotated_types import Ge

from toolsvc.commands.endings import UnusableWords, one_sentence
from toolsvc.fleet.local.serving import serve_locally
from toolsvc.fleet.ray.own_cluster import keep_to_this_machine
from toolsvc.sandbox.config import MIB
from toolsvc.service_config import Hosting, ServiceConfig
from toolsvc.serving import leave, serve_alone
from toolwright.process import loop
from toolwright.process.stderr_log import log_to_stderr
from toolwright.rpc.options import is_unix

_OF_RAY = ("ray_address", "hosts", "host_cpus", "host_gpus", "host_memory_mib")


def serve(
    context: typer.Context,
    tools: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|FILE|SOURCE:...",
            help="a tool by its name, a Python file that defines tools, or a source of tools, as "
            "mcp:...; see `toolsvc list`",
        ),
    ],
    **options: Any,
) -> None:
    """Serve tools until SIGTERM.

    `toolsvc serve python` gives every trajectory a Python session of its own, inside firejail,
    whose variables live from call to call. `toolsvc serve my_tool.py` serves the functions that
    the file decorates with @toolsvc.tool and its toolsvc.Tool subclasses; these run inside the
    service, unconfined. Several may be served together. `toolsvc list` shows what can be served.

    The sandbox tests itself from inside before the service listens, and takes the best level of
    isolation that holds (full, compat, per-session); every response names it. Where none does,
    the service says why and does not start. Bounds: memory by a watch every 0.5 s over all
    processes of a session, all else by the kernel; files by the watch where it cannot.

    With --workers N, N processes hold the sessions. This one places each on the worker with the
    fewest, whose own endpoint the client calls from then on. --max-sessions, --blobs-mib, --ready
    and --shards are of the whole service. A worker that dies loses its own sessions and is
    replaced.

    With --backend ray, --hosts actors of a Ray cluster hold them, and this process alone is spoken
    to; a tool that asks for a GPU or more than 1 GiB gets an actor for each session. When a node
    dies its sessions are lost, no others, and its hosts are replaced.

    On SIGTERM calls in flight get 10 s, then every session ends and no process is left.
    """
    given = {name: value for name, value in options.items() if value is not None}
    config = ServiceConfig(tools=tuple(tools), **given)
    log_to_stderr()
    with one_sentence(extra="ray" if config.backend is Hosting.RAY else ""):
        _check(config, context)
        if config.backend is Hosting.RAY:
            _serve_on_ray(config)
        elif config.workers == 1:
            loop.run(serve_alone(config))
        else:
            loop.run(serve_locally(config))
    leave(0)


def _check(config: ServiceConfig, context: typer.Context) -> None:
    """Raises UnusableWords for options that do not go together."""
    if not (is_unix(config.listen) or re.fullmatch(r".+:\d+", config.listen)):
        raise UnusableWords(f"--listen {config.listen}: write it as host:port, or unix:/path")
    for_workers = bool(config.advertise or config.worker_port)
    if config.backend is Hosting.RAY:
        if config.workers > 1 or for_workers:
            raise UnusableWords(
                "--workers, --advertise and --worker-port are for one machine: with --backend ray "
                "say --hosts"
            )
    elif any(_is_given(context, option) for option in _OF_RAY):
        raise UnusableWords(
            "--ray-address, --hosts and --host-... are for --backend ray: say that too"
        )
    elif config.workers == 1 and for_workers:
        raise UnusableWords("--advertise and --worker-port are for --workers of two or more")


def _is_given(context: typer.Context, option: str) -> bool:
    """Whether the command line has the option, with its default or another value."""
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


def _serve_on_ray(config: ServiceConfig) -> None:
    if not config.ray_address:
        keep_to_this_machine()
    from toolsvc.fleet.ray.serving import Shape, serve_on_ray
    from toolsvc.fleet.resources import Resources

    room = Resources(
        cpus=config.host_cpus, gpus=config.host_gpus, memory_bytes=config.host_memory_mib * MIB
    )
    serve_on_ray(config, Shape(address=config.ray_address, hosts=config.hosts, host=room))


def _parameters() -> Iterator[inspect.Parameter]:
    """A parameter of the command for each field of the table."""
    for name, field in ServiceConfig.model_fields.items():
        if name == "tools":
            continue
        more: Any = dict(field.json_schema_extra or {})  # type: ignore[arg-type]
        lowest: Any = next((one.ge for one in field.metadata if isinstance(one, Ge)), None)
        names = (more.pop("name"),) if "name" in more else ()
        option = typer.Option(*names, help=field.description, min=lowest, **more)
        several = field.annotation == tuple[str, ...]
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if several else field.default,
            annotation=Annotated[list[str] | None if several else field.annotation, option],
        )


_own = inspect.signature(serve, eval_str=True)
serve.__signature__ = _own.replace(  # type: ignore[attr-defined]
    parameters=[*list(_own.parameters.values())[:2], *_parameters()]
)
