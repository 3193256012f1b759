"""`toolsvc serve`: what an operator may say, and which kind of service it makes.

Whatever keeps it from starting is one sentence on standard error and exit code 1."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from toolsvc.commands.endings import UnusableWords, one_sentence
from toolsvc.fleet.local.serving import serve_locally
from toolsvc.fleet.ray.own_cluster import keep_to_this_machine
from toolsvc.host.observation import DEFAULT_LIMIT
from toolsvc.host.task_blobs import DEFAULT_ROOM
from toolsvc.plugin.built_in import BUILT_IN
from toolsvc.sandbox.config import MIB, Backend, Isolation, SandboxConfig
from toolsvc.serving import ServiceConfig, leave, log_to_stderr, serve_alone
from toolsvc.sources.elsewhere import SOURCES
from toolwright.process import loop
from toolwright.rpc.options import is_unix


class Hosting(StrEnum):
    """Where sessions are held."""

    LOCAL = "local"
    """In this process, or in `--workers` beside it."""
    RAY = "ray"
    """In actors on a Ray cluster."""


_OF_RAY = ("ray_address", "hosts", "host_cpus", "host_gpus", "host_memory_mib")


def serve(
    context: typer.Context,
    tools: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|FILE|SOURCE:...",
            help=f"a built-in tool ({', '.join(BUILT_IN)}), a Python file that defines tools, or a "
            f"source of tools ({', '.join(f'{kind}:...' for kind in SOURCES)}); see `toolsvc list`",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="an option of a built-in tool or a source: --set python.output_kib=16"
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="host:port, or unix:/path; port 0 = any that is free")
    ] = "127.0.0.1:50061",
    insecure: Annotated[
        bool, typer.Option(help="listen off loopback without a token or clients' certificates")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM file: the service's certificate, then its chain")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file: the certificate's key")] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(help="PEM file: only clients whose certificate this authority signed"),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="processes behind the address")] = 1,
    advertise: Annotated[
        str, typer.Option(help="host by which clients reach the workers; default: --listen's")
    ] = "",
    worker_port: Annotated[
        int, typer.Option(min=0, help="port of the first worker, the others follow; 0 = any")
    ] = 0,
    backend: Annotated[
        Hosting, typer.Option(help="where sessions are held: by this machine, or a Ray cluster")
    ] = Hosting.LOCAL,
    ray_address: Annotated[
        str, typer.Option(help="host:port of the Ray cluster's head; default: one for the service")
    ] = "",
    hosts: Annotated[int, typer.Option(min=1, help="Ray actors that sessions share")] = 1,
    host_cpus: Annotated[float, typer.Option(min=0, help="of the cluster, for each of them")] = 1.0,
    host_gpus: Annotated[float, typer.Option(min=0, help="of the cluster, for each of them")] = 0.0,
    host_memory_mib: Annotated[
        int, typer.Option(min=0, help="of the cluster, for each of them")
    ] = 1024,
    metrics: Annotated[
        str, typer.Option(help="serve a page for Prometheus at this host:port")
    ] = "",
    metrics_public: Annotated[
        bool, typer.Option(help="show that page to other machines too, without a token")
    ] = False,
    traces: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="send a span of each call to this OTLP/HTTP collector, as http://127.0.0.1:4318; "
            "default: OTEL_EXPORTER_OTLP_ENDPOINT, or none",
        ),
    ] = "",
    health: Annotated[
        str, typer.Option(help="answer grpc.health.v1, without TLS or token, at this host:port too")
    ] = "",
    verltool_http: Annotated[
        str, typer.Option(help="also answer VerlTool's POST /get_observation at this host:port")
    ] = "",
    verltool_frames: Annotated[
        bool,
        typer.Option(help="read actions and frame observations there as VerlTool's tools do"),
    ] = False,
    until_eof: Annotated[
        bool, typer.Option(help="end when standard input does, hence with whoever holds that pipe")
    ] = False,
    max_sessions: Annotated[int, typer.Option(min=1, help="sessions held at once")] = 1024,
    observation_chars: Annotated[
        int, typer.Option(min=64, help="of one observation; more is cut, and said to be")
    ] = DEFAULT_LIMIT,
    blobs_mib: Annotated[
        int, typer.Option(min=1, help="of tasks' images and other media, held at once")
    ] = DEFAULT_ROOM // MIB,
    sandbox: Annotated[
        Backend, typer.Option(help="what confines foreign code; one never replaces another")
    ] = Backend.FIREJAIL,
    allow_unsandboxed: Annotated[
        bool, typer.Option(help="with --sandbox none: yes, run foreign code unconfined")
    ] = False,
    isolation: Annotated[
        Isolation | None,
        typer.Option(help="take this level or refuse to start; default: the best that holds"),
    ] = None,
    ready: Annotated[int, typer.Option(min=0, help="sandboxes held ready for first calls")] = 32,
    shards: Annotated[int, typer.Option(min=1, help="jails that share the sandboxes")] = 2,
    memory_mib: Annotated[int, typer.Option(min=64, help="memory of one session")] = 1024,
    disk_mib: Annotated[int, typer.Option(min=1, help="files of one session, in RAM")] = 256,
    processes: Annotated[int, typer.Option(min=1, help="processes and threads of a session")] = 64,
    sandbox_python: Annotated[
        str | None, typer.Option(help="interpreter in the sandbox; default: the system's")
    ] = None,
    sandbox_user: Annotated[
        str | None, typer.Option(help="account of the sandbox when started as root")
    ] = None,
    landlock_abi: Annotated[
        int | None, typer.Option(min=0, help="for tests: pretend that Landlock is this old")
    ] = None,
    userns: Annotated[
        bool, typer.Option("--userns/--no-userns", help="for tests: pretend to have none")
    ] = True,
) -> None:
    """Serve tools until SIGTERM.

    `toolsvc serve python` gives every trajectory a Python session of its own, inside firejail,
    whose variables live from call to call. `toolsvc serve my_tool.py` serves the functions that
    the file decorates with @toolsvc.tool and its toolsvc.Tool subclasses; these run inside the
    service, unconfined. Several may be served together.

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
    config = ServiceConfig(
        tools=tuple(tools),
        settings=tuple(settings or ()),
        sandbox=SandboxConfig(
            backend=sandbox,
            allow_unsandboxed=allow_unsandboxed,
            isolation=isolation,
            landlock_abi=landlock_abi,
            user_namespaces=userns,
            python=sandbox_python,
            user=sandbox_user,
            shards=shards,
            ready=ready,
            memory_bytes=memory_mib * MIB,
            disk_bytes=disk_mib * MIB,
            file_bytes=min(disk_mib, 64) * MIB,
            processes=processes,
        ),
        listen=listen,
        insecure=insecure,
        certificate=tls_cert,
        key=tls_key,
        clients=tls_client_ca,
        metrics=metrics,
        metrics_public=metrics_public,
        traces=traces,
        health=health,
        max_sessions=max_sessions,
        observation_limit=observation_chars,
        blob_room=blobs_mib * MIB,
        verltool_http=verltool_http,
        verltool_frames=verltool_frames,
        until_eof=until_eof,
    )
    log_to_stderr()
    with one_sentence(extra="ray" if backend is Hosting.RAY else ""):
        if not (is_unix(listen) or re.fullmatch(r".+:\d+", listen)):
            raise UnusableWords(f"--listen {listen}: write it as host:port, or unix:/path")
        if backend is Hosting.RAY:
            if workers > 1 or advertise or worker_port:
                raise UnusableWords(
                    "--workers, --advertise and --worker-port are for one machine: with --backend "
                    "ray say --hosts"
                )
            if not ray_address:
                keep_to_this_machine()
            from toolsvc.fleet.ray.serving import Shape, serve_on_ray
            from toolsvc.fleet.resources import Resources

            room = Resources(cpus=host_cpus, gpus=host_gpus, memory_bytes=host_memory_mib * MIB)
            serve_on_ray(config, Shape(address=ray_address, hosts=hosts, host=room))
        elif any(_is_given(context, option) for option in _OF_RAY):
            raise UnusableWords(
                "--ray-address, --hosts and --host-... are for --backend ray: say that too"
            )
        elif workers == 1:
            if advertise or worker_port:
                raise UnusableWords(
                    "--advertise and --worker-port are for --workers of two or more"
                )
            loop.run(serve_alone(config))
        else:
            loop.run(serve_locally(config, workers, advertise=advertise, first_port=worker_port))
    leave(0)


def _is_given(context: typer.Context, option: str) -> bool:
    """Whether the operator said it, be it the default."""
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"
