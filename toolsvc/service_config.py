"""Options of `toolsvc serve`: one table for the command line, the service and its hosts.

`commands.serve` derives a command-line option from each field: its name, type, default, lower bound
and description. So a new option is one field here.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from toolsvc.host.observation import DEFAULT_LIMIT
from toolsvc.host.task_blobs import DEFAULT_ROOM
from toolsvc.sandbox.config import MIB, Backend, Isolation, SandboxConfig

MAX_SESSIONS = 1024
"""Sessions that a service holds at once, unless its operator says otherwise."""


class Hosting(StrEnum):
    """What holds sessions."""

    LOCAL = "local"
    """This process, or `--workers` beside it."""
    RAY = "ray"
    """Actors on a Ray cluster."""


def _option(default: Any, description: str, **more: Any) -> Any:
    """A field. more: `ge`, its lower bound, or what typer should know of the option."""
    bound = {"ge": more.pop("ge")} if "ge" in more else {}
    return Field(default=default, description=description, json_schema_extra=more, **bound)


class ServiceConfig(BaseModel):
    """Options of a service, by their names on the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tools: tuple[str, ...]
    """Names of registered tools, Python files, and sources."""
    permits: int | None = None
    """Calls that may be starting at once; None = what the machine's cores allow."""

    settings: tuple[str, ...] = _option(
        (), "an option of a tool or a source: --set python.output_kib=16", name="--set"
    )
    listen: str = _option("127.0.0.1:50061", "host:port, or unix:/path; port 0 = any that is free")
    insecure: bool = _option(False, "listen off loopback without a token or clients' certificates")
    tls_cert: Path | None = _option(None, "PEM file: the service's certificate, then its chain")
    tls_key: Path | None = _option(None, "PEM file: the certificate's key")
    tls_client_ca: Path | None = _option(
        None, "PEM file: only clients whose certificate this authority signed"
    )
    workers: int = _option(1, "processes behind the address", ge=1)
    advertise: str = _option("", "host by which clients reach the workers; default: --listen's")
    worker_port: int = _option(0, "port of the first worker, the others follow; 0 = any", ge=0)
    backend: Hosting = _option(Hosting.LOCAL, "what holds sessions: this machine, or a Ray cluster")
    ray_address: str = _option(
        "", "host:port of the Ray cluster's head; default: one for the service"
    )
    hosts: int = _option(1, "Ray actors that sessions share", ge=1)
    host_cpus: float = _option(1.0, "cores of each Ray actor", ge=0)
    host_gpus: float = _option(0.0, "GPUs of each Ray actor", ge=0)
    host_memory_mib: int = _option(1024, "memory of each Ray actor", ge=0)
    metrics: str = _option("", "serve a page for Prometheus at this host:port")
    metrics_public: bool = _option(False, "show that page to other machines too, without a token")
    traces: str = _option(
        "",
        "send a span of each call to this OTLP/HTTP collector, as http://127.0.0.1:4318; "
        "default: OTEL_EXPORTER_OTLP_ENDPOINT, or none",
        metavar="URL",
    )
    health: str = _option("", "answer grpc.health.v1, without TLS or token, at this host:port too")
    verltool_http: str = _option(
        "", "also answer VerlTool's POST /get_observation at this host:port"
    )
    verltool_frames: bool = _option(
        False, "read actions and frame observations there as VerlTool's tools do"
    )
    until_eof: bool = _option(
        False, "end when standard input does, hence with the process at the pipe's other end"
    )
    max_sessions: int = _option(MAX_SESSIONS, "sessions held at once", ge=1)
    observation_chars: int = _option(
        DEFAULT_LIMIT, "characters of one observation; a longer one is cut and marked", ge=64
    )
    blobs_mib: int = _option(
        DEFAULT_ROOM // MIB, "tasks' images and other media, held at once", ge=1
    )
    sandbox: Backend = _option(
        Backend.FIREJAIL, "what confines foreign code; one never replaces another"
    )
    allow_unsandboxed: bool = _option(
        False, "with --sandbox none: yes, run foreign code unconfined"
    )
    isolation: Isolation | None = _option(
        None, "take this level or refuse to start; default: the best that holds"
    )
    ready: int = _option(32, "sandboxes held ready for first calls", ge=0)
    shards: int = _option(2, "jails that share the sandboxes", ge=1)
    memory_mib: int = _option(1024, "memory of one session", ge=64)
    disk_mib: int = _option(256, "files of one session, in RAM", ge=1)
    processes: int = _option(64, "processes and threads of a session", ge=1)
    sandbox_python: str | None = _option(None, "interpreter in the sandbox; default: the system's")
    sandbox_user: str | None = _option(None, "account of the sandbox when started as root")
    landlock_abi: int | None = _option(None, "for tests: pretend that Landlock is this old", ge=0)
    userns: bool = _option(True, "for tests: pretend to have none")

    @property
    def sandbox_config(self) -> SandboxConfig:
        """Settings of each sandbox."""
        return SandboxConfig(
            backend=self.sandbox,
            allow_unsandboxed=self.allow_unsandboxed,
            isolation=self.isolation,
            landlock_abi=self.landlock_abi,
            user_namespaces=self.userns,
            python=self.sandbox_python,
            user=self.sandbox_user,
            shards=self.shards,
            ready=self.ready,
            memory_bytes=self.memory_mib * MIB,
            disk_bytes=self.disk_mib * MIB,
            file_bytes=min(self.disk_mib, 64) * MIB,
            processes=self.processes,
        )
