"""deploy/launch: scripts that start the right programs and leave none behind, and manifests that
Kubernetes' own schemas and our own command lines take.

Samplers, engine, the Python of `learner.launch` and Slurm's commands are small programs that say
what they were given; the samplers' answer over HTTP as SGLang does.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import get_args_parser

from engine.config import EngineTable
from learner.config.tables import LearnerTable
from learner.errors import DivergedError, TakenError, WorthlessError
from tests.support.manifests import LAUNCH as MANIFESTS
from tests.support.manifests import manifest, manifests, spec
from tests.support.net import free_port
from toolwright.recipe import check_all, load_recipe

ROOT = Path(__file__).parents[3]
LAUNCH = ROOT / "deploy" / "launch"
SCRIPTS = sorted(path for path in LAUNCH.iterdir() if path.suffix in (".sh", ".sbatch"))

SAY = """#!{python}
import json, os, sys, time
from pathlib import Path
name = Path(sys.argv[0]).name
kept = ("CUDA_VISIBLE_DEVICES", "SLURMD_NODENAME", "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION")
said = {{"name": name, "pid": os.getpid(), "args": sys.argv[1:]}}
said["env"] = {{key: os.environ[key] for key in kept if key in os.environ}}
log = Path(os.environ["SAID"]) / f"{{name}}-{{os.getpid()}}.json"
log.write_text(json.dumps(said))
how = os.environ.get("END_" + name, "")
if how:
    time.sleep(0.5 if name != "python" else float(os.environ.get("END_AFTER", "0.5")))
    sys.exit(int(how))
if "sglang.launch_server" in sys.argv:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    class Health(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()
        def log_message(self, *_):
            pass
    port = int(sys.argv[sys.argv.index("--port") + 1])
    HTTPServer(("127.0.0.1", port), Health).serve_forever()
time.sleep(60)
"""
SRUN = """#!/usr/bin/env bash
# One after the other would wait for ever: a task on each node of the list, side by side.
for word in "$@"; do
    case $word in
        --nodelist=*) nodes=${word#--nodelist=} ;;
    esac
done
while [[ $1 == --* ]]; do shift; done
trap 'kill $(jobs -p); wait; exit 143' TERM
for node in ${nodes//,/ }; do SLURMD_NODENAME=$node "$@" & done
status=0
for job in $(jobs -p); do wait "$job" || status=$?; done
exit "$status"
"""


class Stage:
    """A folder with the programs that say what they were given; `said` reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "said"
        self.log.mkdir()
        for name in ("sglang", "engine", "python", "toolwright"):
            self._program(name, SAY.format(python=sys.executable))
        self._program("srun", SRUN)
        self._program("scontrol", "#!/usr/bin/env bash\ntr , '\\n' <<<\"$3\"\n")
        self.port = free_port()
        self.started: list[subprocess.Popen[str]] = []

    def _program(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")
        (self.folder / name).chmod(0o755)

    def start(self, script: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
        given = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "SAID": str(self.log),
            "SGLANG": str(self.folder / "sglang"),
            "TOOLWRIGHT": str(self.folder),
            "SAMPLER_PORT": str(self.port),
            "SLURM_SUBMIT_DIR": str(ROOT),
        }
        process = subprocess.Popen(
            [str(LAUNCH / script), *arguments],
            env={**given, **env},
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def said(self, name: str) -> list[dict[str, Any]]:
        """What the program was given, in the order of its starts."""
        logs = sorted(self.log.glob(f"{name}-*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [json.loads(text) for path in logs if (text := path.read_text(encoding="utf-8"))]

    def alive(self) -> list[str]:
        names = ("sglang", "engine", "python", "toolwright")
        pids = [one["pid"] for name in names for one in self.said(name)]
        return [str(pid) for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    found = Stage(tmp_path)
    yield found
    for process in found.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(there: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_bash_and_shellcheck_find_nothing(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    if (checker := shutil.which("shellcheck")) is not None:
        subprocess.run([checker, "-x", "-P", str(ROOT), str(script)], check=True)


def torch_arguments(args: list[str]) -> tuple[Any, list[str]]:
    """(torchrun's own, what follows `-m learner.cli`), as torchrun itself reads them."""
    assert args[:2] == ["-m", "learner.launch"]
    read = get_args_parser().parse_args(args[2:])
    assert read.module and read.training_script == "learner.cli"
    return read, read.training_script_args


NODE = {"SAMPLER_GPUS": "0 2,3", "LEARNER_GPUS": "4,5,6", "SAMPLER_FLAGS": "--context-length 99"}


def test_a_machine_runs_a_sampler_a_word_and_a_rank_a_gpu(stage: Stage) -> None:
    run = stage.start("node.sh", "r.toml", "model", "--set", "run.steps=3", **NODE, END_python="0")
    assert run.wait(60) == 0
    samplers = sorted(stage.said("sglang"), key=lambda one: one["env"]["CUDA_VISIBLE_DEVICES"])
    assert [one["env"]["CUDA_VISIBLE_DEVICES"] for one in samplers] == ["0", "2,3"]
    assert {one["env"]["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] for one in samplers} == {"0"}
    for number, one in enumerate(samplers):
        text = " ".join(one["args"])
        assert text.startswith("-m sglang.launch_server --model-path model --host 127.0.0.1 ")
        assert f"--port {stage.port + number} --tp-size {number + 1} " in text
        assert text.endswith("--incremental-streaming-output --context-length 99")
    urls = f'["http://127.0.0.1:{stage.port}", "http://127.0.0.1:{stage.port + 1}"]'
    settings = ["r.toml", "--set", "run.steps=3", "--set", f"sampler.endpoints={urls}"]
    (engine,), (learner,) = stage.said("engine"), stage.said("python")
    assert engine["args"] == ["serve", *settings]
    assert engine["env"]["CUDA_VISIBLE_DEVICES"] == ""
    (tracker,) = stage.said("toolwright")
    assert tracker["args"] == ["track", *settings]
    own, learner_args = torch_arguments(learner["args"])
    assert (own.nproc_per_node, own.nnodes) == ("3", "1")
    assert learner["env"]["CUDA_VISIBLE_DEVICES"] == "4,5,6"
    assert learner_args == ["run", *settings]
    assert stage.alive() == []


@pytest.mark.parametrize(
    ("ends", "status", "says"),
    [
        ({"END_python": "4"}, 4, ""),
        ({"END_toolwright": "1", "END_AFTER": "1.5", "END_python": "4"}, 4, ""),
        (
            {"END_engine": "0"},
            1,
            "engine or samplers ended with status 0 while the learner trained",
        ),
        ({"END_sglang": "7"}, 1, "samplers ended before"),
    ],
)
def test_whatever_ends_first_ends_all(
    stage: Stage, ends: dict[str, str], status: int, says: str
) -> None:
    run = stage.start("node.sh", "r.toml", "model", **NODE, **ends)
    assert run.wait(60) == status
    assert run.stderr is not None and says in run.stderr.read()
    assert stage.alive() == []


def test_a_signal_leaves_nothing_behind(stage: Stage) -> None:
    run = stage.start("node.sh", "r.toml", "model", **NODE)
    until(lambda: all(map(stage.said, ("python", "engine", "toolwright"))))
    assert len(stage.alive()) == 5
    run.terminate()
    assert run.wait(30) == 143
    assert stage.alive() == []


@pytest.mark.parametrize(
    ("script", "arguments", "says"),
    [
        ("node.sh", (), "which"),
        ("samplers.sh", (), "which"),
        ("slurm.sbatch", (), "which"),
        ("slurm.sbatch", ("r.toml", "model"), "none is left to sample"),
    ],
)
def test_what_is_not_said_is_asked_for(
    stage: Stage, script: str, arguments: tuple[str, ...], says: str
) -> None:
    run = stage.start(script, *arguments, SLURM_JOB_NODELIST="node-a")
    assert run.wait(10) != 0
    assert run.stderr is not None and says in run.stderr.read()


def test_slurm_puts_rank_0_where_the_engine_is(stage: Stage) -> None:
    """Two nodes train, one samples; the names are all this machine's."""
    run = stage.start(
        "slurm.sbatch",
        "r.toml",
        "model",
        SLURM_JOB_NODELIST="node-a,node-b,127.0.0.1",
        LEARNER_NODES="2",
        GPUS_PER_NODE="2",
        END_python="0",
    )
    assert run.wait(60) == 0
    samplers = stage.said("sglang")
    assert {one["env"]["SLURMD_NODENAME"] for one in samplers} == {"127.0.0.1"}
    assert sorted(one["env"]["CUDA_VISIBLE_DEVICES"] for one in samplers) == ["0", "1"]
    assert all("0.0.0.0" in one["args"] for one in samplers)
    (engine,) = stage.said("engine")
    assert "SLURMD_NODENAME" not in engine["env"]  # in the batch script itself: the first node
    ranks = {}
    for one in stage.said("python"):
        own, args = torch_arguments(one["args"])
        ranks[one["env"]["SLURMD_NODENAME"]] = own.node_rank
        assert (own.nnodes, own.nproc_per_node, own.master_addr) == ("2", "2", "node-a")
        assert args == ["run", *engine["args"][1:]]
    assert ranks == {"node-a": 0, "node-b": 1}
    assert stage.alive() == []


def test_slurms_own_options_come_before_any_command() -> None:
    """Slurm reads #SBATCH lines up to the first that is no comment."""
    lines = (LAUNCH / "slurm.sbatch").read_text(encoding="utf-8").splitlines()
    first = next(n for n, line in enumerate(lines) if line and not line.startswith("#"))
    options = [n for n, line in enumerate(lines) if line.startswith("#SBATCH ")]
    assert options and max(options) < first


def objects() -> list[dict[str, Any]]:
    return manifests(MANIFESTS)


def pod(kind: str, name: str) -> dict[str, Any]:
    return spec(manifest(kind, name, MANIFESTS))


def test_the_pods_programs_are_given_what_they_take() -> None:
    (learner,) = pod("Job", "learner")["containers"]
    assert learner["command"][0] == "python"
    words = [*learner["command"][1:], *learner["args"]]
    read, rest = torch_arguments([word.replace("$(NODE_RANK)", "1") for word in words])
    (job,) = (one for one in objects() if one["kind"] == "Job")
    assert int(read.nnodes) == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert read.nproc_per_node == learner["resources"]["limits"]["nvidia.com/gpu"]
    assert rest == ["run", "/recipe/recipe.toml"]
    assert read.master_addr == f"{job['metadata']['name']}-0.{pod('Job', 'learner')['subdomain']}"
    engine, track = pod("StatefulSet", "engine")["containers"]
    assert engine["args"] == ["serve", "/recipe/recipe.toml"]
    assert [*track["command"], *track["args"]] == ["toolwright", "track", "/recipe/recipe.toml"]
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == learner["name"]
    useless = (DivergedError, WorthlessError, TakenError)
    assert rule["onExitCodes"]["values"] == [error.status for error in useless]


def test_the_recipe_fits_the_pods() -> None:
    recipe = load_recipe(MANIFESTS / "recipe.toml")
    assert check_all(recipe) == []
    recipe.table("learner", LearnerTable)
    services = {o["metadata"]["name"]: o for o in objects() if o["kind"] == "Service"}
    name, port = recipe.shared.run.engine.split(":")
    assert services[name]["spec"]["ports"][0]["port"] == int(port)
    assert recipe.table("engine", EngineTable).listen == f"0.0.0.0:{port}"
    samplers = manifest("StatefulSet", "sampler", MANIFESTS)["spec"]["replicas"]
    port = services["sampler"]["spec"]["ports"][0]["port"]
    urls = [f"http://sampler-{n}.sampler:{port}" for n in range(samplers)]
    assert list(recipe.shared.sampler.endpoints) == urls
    (sglang,) = pod("StatefulSet", "sampler")["containers"]
    assert f"--port={port}" in sglang["args"]
    assert f"--context-length={recipe.shared.task.limits.model}" in sglang["args"]
    mounts = {m["mountPath"] for m in sglang["volumeMounts"]}
    for path in (recipe.shared.policy.model, recipe.shared.run.folder):
        assert any(str(path).startswith(f"{mount}/") for mount in mounts)


def reached(name: str) -> set[tuple[str, int | None]]:
    """(namespace or pod, first port) of each rule of egress; None = every port."""
    policy = manifest("NetworkPolicy", name, MANIFESTS)
    found: set[tuple[str, int | None]] = set()
    for rule in policy["spec"].get("egress", ()):
        for peer in rule["to"]:
            chosen = peer.get("namespaceSelector") or peer["podSelector"]
            (label,) = chosen["matchLabels"].values()
            found |= {(label, port["port"]) for port in rule.get("ports", [{"port": None}])}
    assert "Egress" in policy["spec"]["policyTypes"] or not found
    return found


def test_every_pod_reaches_its_peers_and_nothing_else() -> None:
    policies = {o["metadata"]["name"]: o["spec"] for o in objects() if o["kind"] == "NetworkPolicy"}
    assert policies["nobody"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert reached("names") == {("kube-system", 53)}
    assert reached("samplers") == set()
    assert reached("engine") == {("sampler", 30000), ("toolwright", 50061)}
    assert reached("learner") == {("learner", None), ("engine", 50051)}


def test_the_root_of_every_container_is_read_only() -> None:
    for kind, name in (("StatefulSet", "sampler"), ("StatefulSet", "engine"), ("Job", "learner")):
        for one in pod(kind, name)["containers"]:
            assert one["securityContext"]["readOnlyRootFilesystem"] is True
            assert "/tmp" in {mount["mountPath"] for mount in one["volumeMounts"]}
