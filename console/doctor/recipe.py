"""Checks of a recipe: its tables, the servers that it names, its tools, its run folder."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from console.asked.needs import makers
from console.asked.ports import own_services, settle
from console.asked.setup import Setup, with_overrides
from console.doctor.installation import TESTED_SAMPLER, pins
from console.doctor.types import Findings, Patient, ok, problem, unknown, warning
from console.errors import ConsoleError
from console.machine.programs import ask, module
from console.record.run import SIGNS
from toolwright.model.model_folder import ModelFolderError, shape_hash
from toolwright.process.packaged import packaged
from toolwright.process.run_folder import folder_fault
from toolwright.process.sockets import folder_for_sockets
from toolwright.recipe import Recipe, task_key
from toolwright.recipe.models.shared_tables import Tool

LEFT_OUT, WARNING = "left out: ", "warning: "
"""As `engine check` begins such lines."""
TOLD = ("policy: ", "first prompt: ")
"""Lines of `engine check` that the doctor repeats, beside those about memory."""
SUBJECTS = {"service": "tools", "sampler": "sampler", "engine": "engine's port", "tool": "tools"}
START_S = 20.0
"""A search index may take longer, which is no fault."""
UNTRAINED = ("", "default")
"""Weight versions of a server that no engine has brought weights yet."""
MOST_BYTES = 4 << 20
ANSWER_S = 8.0


def recipe(patient: Patient) -> Findings:
    """What nothing makes, and what `engine check` says; what a run makes first is a warning."""
    from console.course.commands import Commands
    from console.course.session import planned

    setup = _setup(patient)
    try:
        planned(setup)
    except ConsoleError as error:
        yield problem("recipe", str(error))
        return
    command = Commands(setup).look()
    said = ask(command.argv, seconds=45.0, environment={**os.environ, **command.environment})
    if said.status is None:
        sentence = f"engine check: {said.last_line}, so it is not known"
        yield unknown("recipe", sentence, "run the doctor again when this machine has less to do")
        return
    if said.status != 0:
        yield problem("recipe", said.last_line.removeprefix("engine: "))
        return
    lines, rest = said.out.splitlines(), "it "
    for line in lines:
        if line.startswith(WARNING):
            yield warning("recipe", line.removeprefix(WARNING))
        elif line.startswith(LEFT_OUT):
            rest = "the rest "
            fix = "`toolwright run` makes it and checks it before it trains"
            yield warning("recipe", f"not looked into yet: {line.removeprefix(LEFT_OUT)}", fix)
    told = [line for line in lines if line.startswith(TOLD) or "] memory: " in line]
    yield ok("recipe", "; ".join([f"engine check finds {rest}in order", *told]))


def servers(patient: Patient) -> Findings:
    """What answers at each address, as `toolwright run` looks at it; then samplers and tools that
    answer are examined."""
    from console.course.look import see
    from console.machine.ready import free_ports

    setup = _setup(patient)
    try:
        real = settle(setup.recipe, setup.table, lambda: free_ports(1)[0])
        setup = with_overrides(setup, real.overrides)
    except ConsoleError as error:
        yield problem("recipe", str(error))
        return
    tools = setup.recipe.shared.tools
    for one in asyncio.run(see(setup, real.services)):
        subject, name = SUBJECTS[one.kind], one.name.removeprefix("tools.")
        if one.why:
            yield problem(subject, one.why, one.fix)
        elif not one.answers:
            yield ok(
                subject, f"{one.name}: nothing at {one.address} yet; `toolwright run` starts it"
            )
        elif one.kind == "sampler":
            server = asyncio.run(_json(f"{one.address.rstrip('/')}/server_info"))
            yield from judge(setup.recipe, one.address, one.info, server)
        elif one.kind != "engine" and name in tools and tools[name].service:
            yield from _listed(setup.recipe, name, tools[name])
        else:
            yield ok(subject, f"{one.name} answers at {one.address} and will be used")


def judge(
    recipe: Recipe, url: str, model: Mapping[str, Any], server: Mapping[str, Any]
) -> Findings:
    """What a sampler's answers to /model_info and /server_info mean for a recipe."""
    model_path, weights = str(model.get("model_path", "")), str(model.get("weight_version", ""))
    version, tested = str(server.get("version", "")), pins(packaged(TESTED_SAMPLER))["sglang"]
    yield ok("sampler", f"{url}: SGLang {version or 'of an unknown version'} answers")
    if version and version != tested:
        fix = f"pip install sglang=={tested} in the sampler's environment"
        yield warning("sampler", f"{url}: SGLang {version}, tested is {tested}", fix)
    policy = recipe.resolve(recipe.shared.policy.model)
    if model_path and _differ(Path(model_path), policy):
        sentence = f"{url}: serves {model_path}, whose shape is not that of policy.model ({policy})"
        yield problem("sampler", sentence, f"end it, and start one with {policy}")
    # A version is LINEAGE-STEP, and a lineage belongs to one run.
    own = {path.name.rpartition("-")[0] for path in (recipe.run_folder / "policy").glob("*-*")}
    if weights not in UNTRAINED and weights.rpartition("-")[0] not in own:
        sentence = f"{url}: holds version {weights} of another run, which may be using it"
        yield warning("sampler", sentence, "give each run samplers of its own")
    longest = server.get("max_req_input_len")
    for name, task in recipe.shared.each_task.items():
        key, wanted = f"{task_key(name)}.limits.model", task.limits.model
        if isinstance(longest, int) and longest < wanted:
            fix = f"start it with --context-length {wanted}, or lower {key}"
            yield problem("sampler", f"{url}: takes {longest} tokens, and {key} is {wanted}", fix)
    if server and not server.get("incremental_streaming_output"):
        sentence = f"{url}: each chunk repeats the whole answer, which costs the engine time"
        yield warning("sampler", sentence, "start it with --incremental-streaming-output")


def tools(patient: Patient) -> Findings:
    """Whether the services start that the engine will start."""
    setup = _setup(patient)
    recipe = setup.recipe
    addresses = [one.ready.removeprefix("grpc:") for one in own_services(recipe)]
    unmade = [one for one in makers(recipe, setup.table) if not one.makes.exists()]
    for name, table in recipe.shared.tools.items():
        paths = {recipe.resolve(word.rpartition("=")[2]) for word in table.words}
        maker = next((one for one in unmade if one.makes in paths), None)
        if not table.serve:
            continue
        if any(f"memory:{address}" in table.serve for address in addresses):
            text = "asks the recipe's memory, which `toolwright run` starts first: not tried"
            yield ok("tools", f"tools.{name}: {text}")
        elif maker is not None:
            text = f"{maker.makes} is not there yet, `toolwright run` makes it by {maker.where}"
            yield warning("tools", f"tools.{name}: not started here: {text}")
        else:
            yield from _started(recipe, name, table)


def run_folder(patient: Patient) -> Findings:
    """Whether it can be written, and what goes on there, as `toolwright status` reports it."""
    from console.course.stopping import state

    run = _setup(patient).run
    if fault := folder_fault(run):
        yield problem("run folder", *fault.split(": ", 2)[1:])
        return
    if not any((run / sign).exists() for sign in SIGNS):
        yield ok("run folder", f"{run} has no run yet and can be written")
        return
    try:
        found = state(run)
    except ConsoleError as error:
        yield problem("run folder", str(error))
        return
    living = [one.name for one in found.processes if one.alive]
    if found.word == "running" or living:
        fix = f"toolwright status {run} shows it; toolwright stop {run} ends it"
        who = ", ".join(living) or found.sentence
        yield warning("run folder", f"a run works in {run} ({who})", fix)
    try:
        begins = f"from {(run / 'checkpoints/latest').read_text(encoding='utf-8').strip()[:100]}"
    except (OSError, ValueError):
        begins = "from step 0"
    yield ok("run folder", f"{run}: {found.word}, a start goes on {begins}")


def _setup(patient: Patient) -> Setup:
    assert patient.setup is not None, "these checks are for a recipe"
    return patient.setup


def _differ(served: Path, policy: Path) -> bool:
    """Whether two models of this machine are known to have other shapes."""
    try:
        return (served / "config.json").is_file() and shape_hash(served) != shape_hash(policy)
    except ModelFolderError:
        return False


def _started(recipe: Recipe, name: str, table: Tool) -> Findings:
    """The service is started, and ends at once."""
    with TemporaryDirectory(prefix="toolwright-", dir=folder_for_sockets()) as private:
        words = (*table.words, "--until-eof", "--listen", f"unix:{private}/tools.sock")
        said = ask(module("toolsvc.cli", "serve", *words), seconds=START_S, folder=recipe.folder)
    where = f"tools.{name}: {table.where}"
    if said.status is None:
        yield unknown("tools", f"{where}: not seen to serve, {said.error}")
    elif said.status != 0:
        why = said.last_line.removeprefix("toolsvc: ")
        yield problem("tools", f"{where}: {why}", f"correct tools.{name}.serve")
    else:
        yield ok("tools", f"{where} starts")


def _listed(recipe: Recipe, name: str, table: Tool) -> Findings:
    """What the service says of its tools, by `toolsvc list`, which knows tokens and TLS."""
    given = {"--tls-ca": table.tls_ca, "--tls-cert": table.tls_cert, "--tls-key": table.tls_key}
    tls = [w for option, file in given.items() if file for w in (option, str(recipe.resolve(file)))]
    where = f"tools.{name} at {table.service}"
    said = ask(module("toolsvc.cli", "list", table.service, "--json", *tls), seconds=15.0)
    if said.status != 0:
        fix = "start it, or correct tools.NAME.service; docs/tools/index.md has the command"
        yield problem("tools", f"{where}: {said.last_line.removeprefix('toolsvc: ')}", fix)
        return
    has = [str(tool["name"]) for tool in json.loads(said.out)["tools"]]
    if lacks := [tool for tool in table.names if tool not in has]:
        fix = f"`toolsvc list {table.service}` shows what it has; correct tools.{name}.names"
        yield problem("tools", f"{where} has no {', '.join(lacks)}", fix)
    else:
        yield ok("tools", f"{where}: {', '.join(has)}")


async def _json(url: str) -> Mapping[str, Any]:
    """The JSON object at a URL; an empty one without an answer in time."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            found = json.loads(await answer.content.read(MOST_BYTES))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
