"""SGLang: its environment here, and each endpoint of a recipe: version, model, what matters."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

from console.doctor.packages import pins
from console.doctor.types import Check, Finding, Findings, Patient, ok, problem, warning
from toolwright.model.model_folder import ModelFolderError, shape_hash
from toolwright.process.packaged import packaged
from toolwright.recipe import Recipe, task_key

ENVIRONMENT, SAMPLER = "sampler's environment", "sampler"
TESTED = "constraints/sampler-cpu.txt"
TOLD = ("sglang", "torch", "transformers")
INSTALL = "toolwright install-sampler"
MOST_BYTES = 4 << 20
ANSWER_S = 8.0
UNTRAINED = ("", "default")
"""Weight versions of a server that no engine has brought anything yet."""


def environment(patient: Patient) -> Findings:
    from console.machine import sampler_home

    start = patient.console.sampler
    if start.way == "none":
        return [ok(ENVIRONMENT, "[console.sampler] way = none: nobody is started here")]
    python = Path(start.python).expanduser() if start.python else sampler_home.find()
    if python is not None and patient.recipe is not None:
        python = patient.recipe.folder / python
    if python is None or not python.is_file():
        where = python or sampler_home.usual()
        needed = problem if patient.recipe is not None else warning
        sentence = f"there is no SGLang for this machine ({where}), so no sampler can be started"
        return [needed(ENVIRONMENT, sentence, INSTALL)]
    have = installed(python)
    if not have.get("sglang"):
        return [problem(ENVIRONMENT, f"{python} has no SGLang", INSTALL)]
    found: list[Finding] = []
    if start.way == "cpu":
        tested = pins(packaged(TESTED))
        differ = [
            f"{name} {have[name]} (tested {tested[name]})"
            for name in TOLD
            if name in have and have[name].partition("+")[0] != tested[name]
        ]
        if differ:
            sentence = f"other versions than the tested ones: {', '.join(differ)}"
            found.append(warning(ENVIRONMENT, sentence, INSTALL))
    text = ", ".join(f"{name} {version}" for name, version in have.items())
    return [*found, ok(ENVIRONMENT, f"{text}, at {python}")]


def installed(python: Path) -> dict[str, str]:
    """Versions of TOLD in the environment of a Python, without starting it."""
    found = {}
    for site in sorted((python.parent.parent / "lib").glob("python*/site-packages")):
        for name in TOLD:
            for one in metadata.distributions(name=name, path=[str(site)]):
                found[name] = str(one.version)
                break
    return found


async def endpoints(patient: Patient) -> Findings:
    import aiohttp

    if patient.recipe is None:
        return []
    found: list[Finding] = []
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for url in patient.recipe.shared.sampler.endpoints:
            found += await _endpoint(patient, patient.recipe, session, url)
    return found


async def _endpoint(patient: Patient, recipe: Recipe, session: Any, url: str) -> Findings:
    from console.machine.listeners import holder, is_here, sampler_at

    address = url.partition("//")[2].partition("/")[0]
    if address.endswith(":0"):
        return [ok(SAMPLER, f"{url}: `toolwright run` takes a free port and starts one there")]
    who = await sampler_at(url)
    if who.who == "nobody":
        started = [one.name for one in patient.console.services]
        if is_here(address) and (patient.console.sampler.way != "none" or SAMPLER in started):
            return [ok(SAMPLER, f"{url}: nobody answers; `toolwright run` starts a server there")]
        mend = (
            "start SGLang there, or correct sampler.endpoints; "
            "docs/operate/sampler.md has the command"
        )
        return [problem(SAMPLER, f"{url}: nobody answers ({who.why})", mend)]
    if who.who == "stranger":
        held = f" ({holder(address)})" if is_here(address) else ""
        mend = "end it, or name another port in sampler.endpoints (0 is any free one)"
        return [problem(SAMPLER, f"{url}{held} {who.why}: it is no SGLang server", mend)]
    model = await _json(session, f"{url.rstrip('/')}/model_info")
    server = await _json(session, f"{url.rstrip('/')}/server_info")
    return judge(recipe, url, model, server)


def judge(recipe: Recipe, url: str, model: dict[str, Any], server: dict[str, Any]) -> Findings:
    """What the answers of a server to /model_info and /server_info mean for a recipe."""
    found: list[Finding] = []
    version, tested = str(server.get("version", "")), pins(packaged(TESTED)).get("sglang", "")
    if version and version != tested:
        mend = f"pip install sglang=={tested} in the sampler's environment"
        found.append(warning(SAMPLER, f"{url}: SGLang {version}, tested is {tested}", mend))
    found += _shape(recipe, url, str(model.get("model_path", "")))
    found += _weights(recipe, url, str(model.get("weight_version", "")))
    longest = server.get("max_req_input_len")
    for name, task in recipe.shared.each_task.items():
        key, wanted = f"{task_key(name)}.limits.model", task.limits.model
        if isinstance(longest, int) and longest < wanted:
            sentence = f"{url}: takes {longest} tokens, and {key} is {wanted}"
            mend = f"start it with --context-length {wanted}, or lower {key}"
            found.append(problem(SAMPLER, sentence, mend))
    if server and not server.get("incremental_streaming_output"):
        sentence = f"{url}: each chunk repeats the whole answer, which costs the engine time"
        mend = "start it with --incremental-streaming-output"
        found.append(warning(SAMPLER, sentence, mend))
    if not any(one.mend for one in found):
        found.append(ok(SAMPLER, f"{url}: SGLang {version or 'of an unknown version'} answers"))
    return found


def _shape(recipe: Recipe, url: str, served: str) -> Findings:
    """Both folders have to be on this machine to be compared."""
    policy = recipe.resolve(recipe.shared.policy.model)
    if not served or not (Path(served) / "config.json").is_file():
        return []
    try:
        same = shape_hash(Path(served)) == shape_hash(policy)
    except ModelFolderError:
        return []
    if same:
        return []
    sentence = f"{url}: serves {served}, whose shape is not that of policy.model ({policy})"
    return [problem(SAMPLER, sentence, f"end it, and start one with {policy}")]


def _weights(recipe: Recipe, url: str, version: str) -> Findings:
    """A version is LINEAGE-STEP, and a lineage belongs to one run."""
    if version in UNTRAINED:
        return []
    lineage = version.rpartition("-")[0]
    own = {path.name.rpartition("-")[0] for path in (recipe.run_folder / "policy").glob("*-*")}
    if lineage in own:
        return [ok(SAMPLER, f"{url}: holds version {version} of this run")]
    sentence = (
        f"{url}: holds version {version}, which is none of {recipe.run_folder}: another run may "
        "be using it"
    )
    return [warning(SAMPLER, sentence, "give each run samplers of its own")]


async def _json(session: Any, url: str) -> dict[str, Any]:
    import aiohttp

    try:
        async with session.get(url) as answer:
            found = json.loads(await answer.content.read(MOST_BYTES))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


CHECKS = (Check(subject=ENVIRONMENT, look=environment),)
OF_RECIPE = (Check(subject=SAMPLER, wait=endpoints, seconds=40.0),)
