"""deploy/kubernetes: what Kubernetes' own schemas say of it, and whether it fits `toolsvc`."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest
import typer

from tests.support.manifests import FOLDER, Manifest, kustomization, manifest, manifests
from toolsvc.cli import app
from toolsvc.fleet.link import END_SECONDS
from toolsvc.plugin.registry import parse_settings, tool_class, validated
from toolsvc.sandbox.config import Backend
from toolwright.rpc.options import TOKEN_VARIABLE

VERSIONS = ("1.33", kubernetes_validate.latest_version())
"""The oldest whose nodes take `hostUsers` and `procMount` unasked, and the newest whose schemas are
installed."""
SERVICES = ("python", "swe")


def check(one: Manifest, version: str) -> None:
    """kubernetes_validate.ValidationError, for a field that Kubernetes does not know, too."""
    kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "one", manifests(), ids=lambda one: f"{one['kind']}-{one['metadata']['name']}"
)
def test_kubernetes_schemas_hold(one: Manifest, version: str) -> None:
    check(one, version)


def spec(one: Manifest) -> Manifest:
    found: Manifest = one["spec"]["template"]["spec"]
    return found


def container(one: Manifest) -> Manifest:
    (found,) = spec(one)["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda one: spec(one).update(terminationGracePeriod=45), "terminationGracePeriod"),
        (lambda one: container(one).update(args="serve python"), "serve python"),
        (lambda one: container(one)["ports"][0].update(containerPort="grpc"), "grpc"),
        (lambda one: container(one)["livenessProbe"].update(grpc={"service": ""}), "port"),
        (lambda one: one["spec"].pop("selector"), "selector"),
        (lambda one: container(one)["securityContext"].update(privilege=True), "privilege"),
    ],
)  # fmt: skip
def test_a_broken_manifest_is_refused(spoil: Callable[[Manifest], Any], says: str) -> None:
    one = copy.deepcopy(manifest("StatefulSet", "python"))
    spoil(one)
    for version in VERSIONS:
        with pytest.raises(kubernetes_validate.ValidationError, match=says):
            check(one, version)


def test_every_file_is_deployed() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(kustomization()["resources"])
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    (image,) = kustomization()["images"]
    assert image["newTag"] == project["version"]
    for name in SERVICES:
        assert container(manifest("StatefulSet", name))["image"] == image["name"]


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


def test_the_image_is_made_of_what_there_is() -> None:
    root = FOLDER.parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    copied = {word for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for word in line.split()}
    assert all((root / name).exists() for name in copied)
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["only-include"]} <= copied
    (extras,) = re.findall(r"'\.\[(.*)\]'", text)
    assert (
        set(extras.split(","))
        == {"toolsvc", "kubernetes"}
        <= set(project["project"]["optional-dependencies"])
    )
    account = spec(manifest("StatefulSet", "swe"))["securityContext"]["runAsUser"]
    assert f"--uid {account} " in text
