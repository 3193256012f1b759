"""Manifests of deploy: what Kubernetes' own schemas say of them, and whether deploy/kubernetes fits
`toolsvc`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer

from tests.support.manifests import (
    FOLDER,
    LAUNCH,
    Manifest,
    kustomization,
    manifest,
    manifests,
    spec,
)
from toolsvc.cli import app
from toolsvc.fleet.link import END_SECONDS
from toolsvc.plugin.registry import parse_settings, tool_class, validated
from toolsvc.sandbox.config import Backend
from toolwright.rpc.options import TOKEN_VARIABLE

VERSIONS = ("1.33", kubernetes_validate.latest_version())
"""The oldest whose nodes take `hostUsers` and `procMount` unasked, and the newest whose schemas are
installed."""
SERVICES = ("python", "swe")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", [FOLDER, LAUNCH], ids=["kubernetes", "launch"])
def test_kubernetes_schemas_hold_and_every_file_is_deployed(folder: Path, version: str) -> None:
    for one in manifests(folder):
        kubernetes_validate.validate(one, version, strict=True)
    files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(kustomization(folder)["resources"])


def container(one: Manifest) -> Manifest:
    (found,) = spec(one)["containers"]
    assert isinstance(found, dict)
    return found


def parsed(name: str) -> dict[str, Any]:
    """What `toolsvc` makes of the container's command line; SystemExit or UsageError if nothing."""
    command: Any = typer.main.get_command(app)
    first, *rest = container(manifest("StatefulSet", name))["args"]
    context = command.commands[first].make_context(first, list(rest))
    found: dict[str, Any] = context.params
    return found


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize("name", SERVICES)
def test_the_command_line_is_one_that_toolsvc_takes(name: str) -> None:
    options = parsed(name)
    assert options["tools"] == [name]
    settings = parse_settings(options["settings"] or [])
    assert settings.keys() <= {name}
    validated(tool_class(name).Config, name, settings.get(name, {}))


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_those_of_the_command_line(name: str) -> None:
    options = parsed(name)
    one, service = manifest("StatefulSet", name), manifest("Service", name)
    workers = {
        f"worker-{slot}": options["worker_port"] + slot for slot in range(options["workers"])
    }
    clients = {"grpc": port(options["listen"]), **workers}
    others = {"health": port(options["health"]), "metrics": port(options["metrics"])}
    opened = {each["name"]: each["containerPort"] for each in container(one)["ports"]}
    assert opened == {**clients, **others}
    assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == clients
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container(one)[probe]["grpc"]["port"] == others["health"]
    annotations = one["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(others["metrics"])
    tools, monitoring = manifest("NetworkPolicy", "services")["spec"]["ingress"]
    (allowed,) = tools["ports"]
    assert [allowed["port"], allowed["endPort"]] == [min(clients.values()), max(clients.values())]
    assert monitoring["ports"] == [{"port": others["metrics"]}]


@pytest.mark.parametrize("name", SERVICES)
def test_clients_reach_each_worker_by_its_pods_own_name(name: str) -> None:
    one, service = manifest("StatefulSet", name), manifest("Service", name)
    assert service["spec"]["clusterIP"] == "None"
    assert one["spec"]["serviceName"] == service["metadata"]["name"]
    labels = one["spec"]["template"]["metadata"]["labels"].items()
    for selector in (
        service["spec"]["selector"],
        one["spec"]["selector"]["matchLabels"],
        manifest("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"],
        manifest("NetworkPolicy", "services")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels
    domain = f"{name}.{service['metadata']['namespace']}.svc.cluster.local"
    assert parsed(name)["advertise"] == f"$(POD_NAME).{domain}"


@pytest.mark.parametrize("name", SERVICES)
def test_a_pod_has_time_to_drain(name: str) -> None:
    """The supervisor kills what has not ended by then, and needs a moment of its own."""
    assert spec(manifest("StatefulSet", name))["terminationGracePeriodSeconds"] >= END_SECONDS + 5


@pytest.mark.parametrize("name", SERVICES)
def test_token_and_certificate_come_from_secrets(name: str) -> None:
    one, options = manifest("StatefulSet", name), parsed(name)
    variables = {each["name"]: each["valueFrom"] for each in container(one)["env"]}
    assert variables["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    token = variables[TOKEN_VARIABLE]["secretKeyRef"]
    assert "optional" not in token
    assert not options["insecure"]  # so a pod whose token is empty does not start
    volumes = {each["name"]: each for each in spec(one)["volumes"]}
    mounts = {each["mountPath"]: each for each in container(one)["volumeMounts"]}
    folder = str(options["tls_cert"].parent)
    assert options["tls_key"].parent == options["tls_cert"].parent
    assert volumes[mounts[folder]["name"]]["secret"].keys() == {"secretName", "defaultMode"}
    # As `kubectl create secret tls` names them.
    assert (options["tls_cert"].name, options["tls_key"].name) == ("tls.crt", "tls.key")


def test_foreign_code_runs_in_the_sandbox_and_its_root_is_not_the_nodes() -> None:
    one, options = manifest("StatefulSet", "python"), parsed("python")
    assert (options["sandbox"], options["allow_unsandboxed"]) == (Backend.BUBBLEWRAP, False)
    assert spec(one)["hostUsers"] is False
    context = container(one)["securityContext"]
    assert not context.get("privileged")
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["KILL", "SETGID", "SETUID"]}


@pytest.mark.parametrize("name", SERVICES)
def test_the_root_of_a_container_is_read_only(name: str) -> None:
    one = manifest("StatefulSet", name)
    assert container(one)["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {each["mountPath"]: each for each in container(one)["volumeMounts"]}
    volumes = {each["name"]: each for each in spec(one)["volumes"]}
    assert "emptyDir" in volumes[mounts["/tmp"]["name"]]
    assert all(each.get("readOnly") for path, each in mounts.items() if path != "/tmp")


def test_each_pod_has_a_rule_for_what_it_reaches() -> None:
    services = manifest("NetworkPolicy", "services")["spec"]
    assert "Egress" in services["policyTypes"] and "egress" not in services
    for name in ("services", "swe-to-the-api", "no-network"):
        assert "Egress" in manifest("NetworkPolicy", name)["spec"]["policyTypes"]


def test_pods_are_made_where_the_role_lets_them() -> None:
    options = validated(
        tool_class("swe").Config, "swe", parse_settings(parsed("swe")["settings"])["swe"]
    )
    namespace = options.namespace  # type: ignore[attr-defined]
    for kind, name in (
        ("Role", "boxes"),
        ("RoleBinding", "boxes"),
        ("NetworkPolicy", "no-network"),
    ):
        assert manifest(kind, name)["metadata"]["namespace"] == namespace
    binding = manifest("RoleBinding", "boxes")
    (subject,) = binding["subjects"]
    account = manifest(subject["kind"], subject["name"])["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    assert spec(manifest("StatefulSet", "swe"))["serviceAccountName"] == account["name"]
    assert not spec(manifest("StatefulSet", "python"))["automountServiceAccountToken"]
    assert manifest("NetworkPolicy", "no-network")["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
    }


@pytest.mark.parametrize(
    ("folder", "extras", "workloads"),
    [
        (FOLDER, {"toolsvc", "kubernetes"}, [("StatefulSet", "python"), ("StatefulSet", "swe")]),
        (
            LAUNCH,
            {"engine", "learner", "console"},
            [("StatefulSet", "sampler"), ("StatefulSet", "engine"), ("Job", "learner")],
        ),
    ],
    ids=["kubernetes", "launch"],
)
def test_the_image_is_made_of_what_there_is(
    folder: Path, extras: set[str], workloads: list[tuple[str, str]]
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (folder / "Dockerfile").read_text(encoding="utf-8")
    copied = {word for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for word in line.split()}
    assert all((ROOT / name).exists() for name in copied)
    assert {*project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]} <= copied
    (named,) = re.findall(r"'\.\[(.*)\]'", text)
    assert set(named.split(",")) == extras <= set(project["project"]["optional-dependencies"])
    images = {image["name"]: image.get("newTag") for image in kustomization(folder)["images"]}
    assert folder is LAUNCH or set(images.values()) == {project["project"]["version"]}
    pods = [spec(manifest(*workload, folder)) for workload in workloads]
    assert {each["image"] for pod in pods for each in pod["containers"]} == set(images)
    accounts = {user for pod in pods if (user := pod.get("securityContext", {}).get("runAsUser"))}
    assert accounts and all(f"--uid {account} " in text for account in accounts)
