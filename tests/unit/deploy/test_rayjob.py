"""deploy/launch/ray: its pods by Kubernetes' own schemas, and its entrypoint by `engine`."""

from __future__ import annotations

import shlex
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml

from engine.cli import app
from engine.serving.crew.processes.backends import Backend
from engine.serving.crew.processes.ray_workers import CPUS
from tests.support.manifests import LAUNCH, Manifest, manifest, spec

pytestmark = pytest.mark.quick

FILE = LAUNCH.parent / "ray" / "rayjob.yaml"


@pytest.fixture(scope="module")
def objects() -> dict[str, Manifest]:
    return {one["kind"]: one for one in yaml.safe_load_all(FILE.read_text(encoding="utf-8"))}


def templates(objects: dict[str, Manifest]) -> list[Manifest]:
    cluster = objects["RayJob"]["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"] for group in groups]


def test_kubernetes_schemas_hold(objects: dict[str, Manifest]) -> None:
    latest = kubernetes_validate.latest_version()
    for template in templates(objects):
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template["metadata"], "name": "ray"}
        kubernetes_validate.validate(pod, latest, strict=True)
    for kind in ("Service", "NetworkPolicy"):
        kubernetes_validate.validate(objects[kind], latest, strict=True)


def test_the_entrypoint_is_one_that_the_engine_takes_and_the_nodes_have_room(
    objects: dict[str, Manifest],
) -> None:
    job = objects["RayJob"]["spec"]
    program, first, *rest = shlex.split(job["entrypoint"])
    assert (program, first) == ("engine", "serve")
    command: Any = typer.main.get_command(app)
    options = command.commands[first].make_context(first, rest).params
    assert options["backend"] is Backend.RAY
    assert options["ray_address"] == "$RAY_ADDRESS"
    rooms = [
        group["replicas"] * int(float(group["rayStartParams"]["num-cpus"]) // CPUS)
        for group in job["rayClusterSpec"]["workerGroupSpecs"]
    ]
    assert sum(rooms) == options["workers"]


def test_pods_have_what_the_engines_own_has(objects: dict[str, Manifest]) -> None:
    """Recipe, run folder, token and authority, under the same paths."""
    own = spec(manifest("StatefulSet", "engine", LAUNCH))
    engine = next(one for one in own["containers"] if one["name"] == "engine")
    for template in templates(objects):
        (container,) = template["spec"]["containers"]
        assert container["env"] == engine["env"]
        tmp = {"name": "tmp", "mountPath": "/tmp"}  # Ray writes there, in the image's own folder
        assert [*container["volumeMounts"], tmp] == engine["volumeMounts"]
        assert [*template["spec"]["volumes"], {"name": "tmp", "emptyDir": {}}] == own["volumes"]
