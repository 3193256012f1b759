"""Stands in for a Kubernetes API server: pods of one namespace, on loopback.

It speaks what the swe tool's runner needs of the API: listing, creating, watching and deleting
pods, and commands over web sockets (v4.channel.k8s.io). Its pods are containers of the `docker`
stand-in beside this file. Images named `missing`, `crash` and `stuck` never run, each in its way.

Its one account may do what its Role says, and nothing else, as Kubernetes' RBAC has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

DOCKER = (sys.executable, "-IS", str(Path(__file__).with_name("docker.py")))
"""The command of the stand-in, which starts some hundred times: the interpreter itself, where
`python3` may be a script that looks for one."""
TOKEN = "of-the-tests"
_PODS = "/api/v1/namespaces/{namespace}/pods"


class Cluster:
    def __init__(self, role: Mapping[str, Any]) -> None:
        """`role`: the manifest of a Role."""
        self._allowed = {
            (verb, resource)
            for rule in role["rules"]
            for verb in rule["verbs"]
            for resource in rule["resources"]
        }
        self.used: set[tuple[str, str]] = set()
        """Verb and resource of all that was asked for."""
        self.pods: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        """Every manifest that was ever asked for."""
        self.deleted: list[str] = []
        self._changed = asyncio.Condition()
        self._log: list[tuple[str, dict[str, Any]]] = []

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Yields its address."""
        app = web.Application(middlewares=[self._authorised])
        app.router.add_get(_PODS, self._list)
        app.router.add_post(_PODS, self._create)
        app.router.add_delete(_PODS, self._delete_all)
        app.router.add_delete(_PODS + "/{name}", self._delete)
        app.router.add_get(_PODS + "/{name}/exec", self._exec)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    @web.middleware
    async def _authorised(self, request: web.Request, handler: Any) -> Any:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized")
        asked = _rights(request)
        self.used |= asked
        if not asked <= self._allowed:
            return _status(403, f"the account may not {sorted(asked - self._allowed)}")
        return await handler(request)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if _is_down():
            return _status(503, "no connection to etcd")
        wanted = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        if request.query.get("watch") not in ("true", "True"):
            items = [pod for name, pod in self.pods.items() if wanted in ("", name)]
            items = [one for pod in items for one in await _as_it_is(pod)]
            return web.json_response({"kind": "PodList", "metadata": {}, "items": items})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        seen = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(float(request.query["timeoutSeconds"])):
                while True:
                    for kind, pod in self._log[seen:]:
                        if pod["metadata"]["name"] == wanted:
                            event = json.dumps({"type": kind, "object": pod})
                            await response.write(event.encode() + b"\n")
                    seen = len(self._log)
                    async with self._changed:
                        while len(self._log) == seen:
                            await self._changed.wait()
        return response

    async def _create(self, request: web.Request) -> web.Response:
        pod = await request.json()
        self.created.append(pod)
        name = pod["metadata"]["name"]
        await self._tell("ADDED", pod, {"phase": "Pending"})
        (container,) = pod["spec"]["containers"]
        image = container["image"]
        if image == "missing":
            await self._tell("MODIFIED", pod, _waiting("ErrImagePull", "not found"))
        elif image == "crash":
            await self._tell("MODIFIED", pod, {"phase": "Failed", "message": "it crashed"})
        elif image != "stuck":
            entry, *arguments = container["command"]
            await _docker(
                *("run", "--detach", "--name", name, "--label", "pod", "--network", "none"),
                *("--security-opt", "", "--cap-drop", "", "--cpus", "", "--pids-limit", ""),
                *("--memory", "", "--memory-swap", "", "--stop-signal", ""),
                *("--workdir", container["workingDir"]),
                *("--entrypoint", entry, image, *arguments),
            )
            await self._tell("MODIFIED", pod, {"phase": "Running"})
        return web.json_response(pod, status=201)

    async def _tell(self, kind: str, pod: dict[str, Any], status: dict[str, Any]) -> None:
        pod = {**pod, "status": status}
        self.pods[pod["metadata"]["name"]] = pod
        async with self._changed:
            self._log.append((kind, pod))
            self._changed.notify_all()

    async def _delete(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.pods:
            return _status(404, f'pods "{name}" not found')
        await self.remove(name)
        return _status(200, "")

    async def _delete_all(self, request: web.Request) -> web.Response:
        key, _, value = request.query["labelSelector"].partition("=")
        for name, pod in list(self.pods.items()):
            if pod["metadata"]["labels"][key] == value:
                await self.remove(name)
        return _status(200, "")

    async def remove(self, name: str) -> None:
        pod = self.pods.pop(name)
        self.deleted.append(name)
        await _docker("rm", "--force", name)
        async with self._changed:
            self._log.append(("DELETED", pod))
            self._changed.notify_all()

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if _is_down():
            return _status(503, "no connection to the node")
        if name not in self.pods:
            return _status(404, f'pods "{name}" not found')
        assert request.query["container"] == "box"
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        (container,) = self.pods[name]["spec"]["containers"]
        process = await asyncio.create_subprocess_exec(
            *(*DOCKER, "exec", "--interactive", "--workdir", container["workingDir"], name),
            *request.query.getall("command"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin and process.stdout and process.stderr
        giving = asyncio.create_task(_give(socket, process.stdin))
        await asyncio.gather(
            _pass_on(process.stdout, socket, 1), _pass_on(process.stderr, socket, 2)
        )
        code = await process.wait()
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(b"\3" + json.dumps(_ending(code)).encode())
            await socket.close()
        giving.cancel()
        return socket


async def _give(socket: web.WebSocketResponse, stdin: asyncio.StreamWriter) -> None:
    """The real one never ends a command's standard input, and neither does this."""
    async for message in socket:
        if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
            with contextlib.suppress(ConnectionError):
                stdin.write(message.data[1:])
                await stdin.drain()


async def _pass_on(
    stream: asyncio.StreamReader, socket: web.WebSocketResponse, channel: int
) -> None:
    while data := await stream.read(32 * 1024):
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(bytes((channel,)) + data)


def _is_down() -> bool:
    """The API answers, and nothing behind it does."""
    return Path(os.environ["STANDIN"], "down").exists()


async def _as_it_is(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """With how its container ended, if it did; nothing where it is gone."""
    if pod["status"]["phase"] != "Running":
        return [pod]
    form = ("--type", "container", "--format", "{{json .State}}")
    process = await asyncio.create_subprocess_exec(
        *DOCKER, "inspect", *form, pod["metadata"]["name"], stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode:
        return []
    state = json.loads(said)
    if state["Running"]:
        return [pod]
    ended = {"terminated": {"reason": "Error", "exitCode": state["ExitCode"]}}
    return [{**pod, "status": {"phase": "Failed", "containerStatuses": [_container(ended)]}}]


def _ending(code: int) -> dict[str, Any]:
    if code == 0:
        return {"status": "Success"}
    cause = {"reason": "ExitCode", "message": str(code)}
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}


def _waiting(reason: str, message: str) -> dict[str, Any]:
    waiting = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [_container(waiting)]}


def _container(state: dict[str, Any]) -> dict[str, Any]:
    """A container's status with all keys that clients require."""
    known = {"name": "box", "image": "image", "imageID": "", "ready": False, "restartCount": 0}
    return {**known, "state": state}


def _status(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "message": message, "code": code}
    return web.json_response(body, status=code)


async def _docker(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *DOCKER, *arguments, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0, arguments


def _rights(request: web.Request) -> set[tuple[str, str]]:
    """What RBAC asks for, as verb and resource."""
    if request.path.endswith("/exec"):
        # The verb of a GET, and from Kubernetes 1.35 on that of the command that it begins.
        return {("get", "pods/exec"), ("create", "pods/exec")}
    verb = {"GET": "list", "POST": "create", "DELETE": "delete"}[request.method]
    if request.query.get("watch") in ("true", "True"):
        verb = "watch"
    if verb == "delete" and "name" not in request.match_info:
        verb = "deletecollection"
    return {(verb, "pods")}


def kubeconfig(address: str) -> str:
    """The text of a configuration that leads to it."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
            "clusters": [{"name": "tests", "cluster": {"server": address}}],
            "users": [{"name": "tests", "user": {"token": TOKEN}}],
        }
    )


def install_docker(program: Path) -> None:
    """Makes a file that is the stand-in, for PATH."""
    program.write_text(f'#!/bin/sh\nexec {shlex.join(DOCKER)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
