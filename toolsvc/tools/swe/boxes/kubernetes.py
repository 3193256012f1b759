"""Boxes that are pods of a Kubernetes cluster: one pod for each.

The cluster is the one of KUBECONFIG or ~/.kube/config, else the one that the service itself runs
in. A pod has requests and limits, no service account, and no more privileges than files of its own
need; it ends by its deadline should the service not live to delete it. What network pods have is
the cluster's to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import aiohttp
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.stream import WsApiClient

from toolsvc.errors import StartError
from toolsvc.tools.swe.boxes.box import Box, BoxError, BoxGone, BoxLimits, Runner, StartFailed
from toolsvc.tools.swe.boxes.container import ContainerBox, main_process
from toolwright.containers import CAPABILITIES, ERRORS, OUT, Take

LABEL = "toolwright/service"
_CONTAINER = "box"
_SECONDS = 30.0
"""Longest wait for an answer of the API, in seconds."""
_WATCH_SECONDS = 60
"""Interval after which the pod is read again, in case the API lost the watch, in seconds."""
_GIVEN, _TOLD = 0, 3
"""Channels of the API's remote commands: standard input, and how the command ended."""
_PIECE = 32 * 1024
_HOPELESS = {
    *("CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull"),
    *("ImageInspectError", "ImagePullBackOff", "InvalidImageName", "RunContainerError"),
}
"""Why a container waits, where waiting longer would not help."""

_NOT_RUN = re.compile(r"\bOCI\b|exec failed")
"""Messages of runtimes about a container without bash, or without room for another process."""
_LOOKS, _BETWEEN_LOOKS = 4, 0.5

_FAILURES = (ApiException, aiohttp.ClientError, OSError)


class KubernetesRunner(Runner):
    isolation = "kubernetes"

    def __init__(self, namespace: str, limits: BoxLimits, folder: str) -> None:
        """`folder`: of the repository in each pod."""
        self._namespace = namespace
        self._limits = limits
        self._folder = folder
        self._service = secrets.token_hex(8)
        self._stack = contextlib.AsyncExitStack()
        self._usable = False

    async def start(self) -> None:
        settings = client.Configuration()
        settings.connection_pool_maxsize = 0  # every running command holds a connection
        try:
            await _configure(settings)
            plain = await self._stack.enter_async_context(client.ApiClient(settings))
            remote = await self._stack.enter_async_context(WsApiClient(settings))
            self._pods, self._remote = client.CoreV1Api(plain), client.CoreV1Api(remote)
            await self._pods.list_namespaced_pod(
                self._namespace, limit=1, _request_timeout=_SECONDS
            )
        except (*_FAILURES, config.ConfigException, TimeoutError) as error:
            await self._stack.aclose()
            raise StartError(
                f"no pods can be had in namespace {self._namespace!r} ({_why(error)}): set "
                "KUBECONFIG, and give its user the Role of deploy/kubernetes/swe.yaml there"
            ) from error
        self._usable = True

    async def stop(self) -> None:
        if not self._usable:
            return
        async with self._stack:
            with contextlib.suppress(*_FAILURES, TimeoutError):
                await self._pods.delete_collection_namespaced_pod(
                    self._namespace,
                    label_selector=f"{LABEL}={self._service}",
                    grace_period_seconds=0,
                    _request_timeout=_SECONDS,
                )

    async def new_box(self, image: str) -> Box:
        name = f"toolwright-{secrets.token_hex(8)}"
        box = PodBox(
            self._pods, self._remote, self._namespace, name, self._folder, self._limits.life
        )
        try:
            manifest: Any = self._manifest(name, image)  # the client takes plain JSON as well
            await self._pods.create_namespaced_pod(
                self._namespace, manifest, _request_timeout=_SECONDS
            )
            await self._running(name)
        except BaseException as error:
            await box.close()
            if isinstance(error, _FAILURES):
                raise StartFailed(f"pod of {image}: {_why(error)}") from error
            raise
        return box

    async def _running(self, name: str) -> None:
        """Waits for it. Raises StartFailed if it never will be."""
        while True:
            async with contextlib.aclosing(self._events(name)) as events:
                async for kind, pod in events:
                    if kind == "DELETED":
                        raise StartFailed(f"pod {name} was deleted while it started")
                    if is_running(name, pod.get("status", {})):
                        return

    async def _events(self, name: str) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Kind of change and pod; the first tells how it is."""
        async with watch.Watch(return_type="object") as changes:
            async for event in changes.stream(
                self._pods.list_namespaced_pod,
                self._namespace,
                field_selector=f"metadata.name={name}",
                timeout_seconds=_WATCH_SECONDS,
            ):
                yield event["type"], event["raw_object"]

    def _manifest(self, name: str, image: str) -> dict[str, Any]:
        limits = self._limits
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {"app.kubernetes.io/managed-by": "toolwright", LABEL: self._service},
            },
            "spec": {
                "restartPolicy": "Never",
                "activeDeadlineSeconds": int(limits.life),
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "containers": [
                    {
                        "name": _CONTAINER,
                        "image": image,
                        "command": main_process(limits.life),
                        "workingDir": self._folder,
                        "resources": {
                            "requests": {
                                "cpu": f"{limits.requested_cpus:g}",
                                "memory": str(limits.requested_memory_bytes),
                            },
                            "limits": {
                                "cpu": f"{limits.cpus:g}",
                                "memory": str(limits.memory_bytes),
                            },
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
                        },
                    }
                ],
            },
        }


class PodBox(ContainerBox):
    def __init__(
        self, pods: Any, remote: Any, namespace: str, name: str, folder: str, life: float
    ) -> None:
        """`pods`: the API; `remote`: the same over web sockets."""
        super().__init__(folder, life)
        self._pods = pods
        self._remote = remote
        self._namespace = namespace
        self._name = name
        self._closed = False

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.shield(self._delete())

    async def _delete(self) -> None:
        # One that cannot be deleted now is ended by its deadline.
        with contextlib.suppress(*_FAILURES, TimeoutError):
            await self._pods.delete_namespaced_pod(
                self._name, self._namespace, grace_period_seconds=0, _request_timeout=_SECONDS
            )

    async def _process(self, command: str, given: bytes, take: Take) -> int:
        try:
            socket = await self._remote.connect_get_namespaced_pod_exec(
                self._name,
                self._namespace,
                container=_CONTAINER,
                command=["bash", "-c", command],
                stdin=True,
                stdout=True,
                stderr=True,
                tty=False,
                _preload_content=False,
            )
            async with socket as connection, asyncio.TaskGroup() as group:
                giving = group.create_task(_give(connection, given))
                told = await _follow(connection, take)
                giving.cancel()
        except* _FAILURES as failures:
            raise BoxGone(f"pod {self._name}: {_why(failures.exceptions[0])}") from failures
        if told is None:
            raise BoxGone(f"pod {self._name}: the connection was cut")
        return exit_code(self._name, told)

    async def _ended(self, patient: bool) -> str:
        """The API hears of a container's end a little later than its commands do."""
        for look in range(_LOOKS if patient else 1):
            if look:
                await asyncio.sleep(_BETWEEN_LOOKS)
            try:
                pods = await self._pods.list_namespaced_pod(
                    self._namespace,
                    field_selector=f"metadata.name={self._name}",
                    _request_timeout=_SECONDS,
                    _preload_content=False,
                )
                found = await pods.json()
            except (*_FAILURES, TimeoutError, ValueError) as error:
                raise BoxGone(f"pod {self._name}: {_why(error)}") from error
            ended = how_ended(self._name, found.get("items", []))
            if ended:
                return ended
        return ""


async def _configure(settings: client.Configuration) -> None:
    """ConfigException where there is neither a file nor a service account."""
    file = os.environ.get("KUBECONFIG")
    if file:
        await config.load_kube_config(config_file=file, client_configuration=settings)
    else:
        await config.load_config(client_configuration=settings)


def is_running(name: str, status: dict[str, Any]) -> bool:
    """Whether its container runs. Raises StartFailed if it never will."""
    phase = status.get("phase")
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") in _HOPELESS:
            raise StartFailed(f"pod {name}: {waiting['reason']}: {waiting.get('message', '')}")
    if phase in ("Failed", "Succeeded"):
        why = status.get("message") or status.get("reason") or "its container has ended"
        raise StartFailed(f"pod {name}: {why}")
    return bool(phase == "Running")


def how_ended(name: str, pods: Sequence[Mapping[str, Any]]) -> str:
    """How the code in the pod ended it, from the API's list of pods; "" while it runs. Raises
    BoxGone if the cluster ended the pod: then its status has a reason, which no container can
    set."""
    if not pods:
        raise BoxGone(f"pod {name} was deleted")
    status = pods[0].get("status", {})
    if status.get("reason") or pods[0].get("metadata", {}).get("deletionTimestamp"):
        why = status.get("message") or status.get("reason") or "it is being deleted"
        raise BoxGone(f"pod {name}: {why}")
    for container in status.get("containerStatuses", ()):
        ended = container.get("state", {}).get("terminated")
        if ended is not None and ended.get("reason") == "OOMKilled":
            return "the container ran out of memory"
        if ended is not None:
            return f"the container's first process ended with exit code {ended.get('exitCode')}"
    return "" if status.get("phase") == "Running" else f"the pod is {status.get('phase')}"


def exit_code(name: str, told: bytes) -> int:
    """The exit code, read from the API's word on how a command ended. Raises BoxError if the
    container could not run it, BoxGone if that is not known."""
    try:
        return WsApiClient.parse_error_data(told)
    except (KeyError, IndexError, TypeError, ValueError):
        why = told.decode("utf-8", "replace")[:300]
        if _NOT_RUN.search(why):
            raise BoxError(f"no command can be run: {why}") from None
        raise BoxGone(f"pod {name}: {why}") from None


async def _give(connection: aiohttp.ClientWebSocketResponse, given: bytes) -> None:
    # A command may end without reading all.
    with contextlib.suppress(aiohttp.ClientError, ConnectionError):
        for start in range(0, len(given), _PIECE):
            await connection.send_bytes(bytes((_GIVEN,)) + given[start : start + _PIECE])


async def _follow(connection: aiohttp.ClientWebSocketResponse, take: Take) -> bytes | None:
    """Passes on what the command prints; what the API says of its end, None if it does not."""
    async for message in connection:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _TOLD:
            return bytes(data)
        if channel in (OUT, ERRORS) and data:
            take(channel, data)
    return None


def _why(error: BaseException) -> str:
    if isinstance(error, ApiException):
        return f"{error.status} {error.reason}"
    return str(error) or type(error).__name__
