"""mini-swe-agent with litellm, its own settings: play_mini_swe_agent.py URL PROVIDER."""

import sys
from pathlib import Path

import minisweagent
import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

url, provider = sys.argv[1:]
settings = Path(minisweagent.__file__).parent / "config/mini.yaml"
config = yaml.safe_load(settings.read_text(encoding="utf-8"))
config["model"]["model_kwargs"] |= {"api_base": url, "api_key": "unused"}
model = LitellmModel(**config["model"], model_name=f"{provider}/policy")
agent = DefaultAgent(model, LocalEnvironment(), **config["agent"])
print(agent.run("Count.")["exit_status"])
