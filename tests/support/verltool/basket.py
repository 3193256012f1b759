import base64
import json
import os
import tempfile
import time

from verl_tool.servers.tools.base import BaseTool, register_tool


@register_tool
class BasketTool(BaseTool):
    tool_type = "basket"

    def __init__(self, num_workers=1):
        super().__init__(num_workers)
        self.folder = os.environ.get("BASKET_FOLDER", tempfile.gettempdir())

    def get_usage_inst(self):
        return 'You fill a basket with <tool_call>{"put": "apple"}</tool_call>.'

    def load_env(self, trajectory_id):
        env = super().load_env(trajectory_id)
        if "path" not in env:
            handle, env["path"] = tempfile.mkstemp(prefix="basket-", dir=self.folder)
            os.close(handle)
        return env

    def delete_env(self, trajectory_id):
        env = self.env_cache.pop(trajectory_id)
        os.unlink(env["path"])

    def parse_action(self, action):
        try:
            call = json.loads(action.split("<tool_call>")[-1].split("</tool_call>")[0])
        except ValueError:
            return None, False
        return call, isinstance(call, dict)

    def conduct_action(self, trajectory_id, action, extra_field):
        call, is_valid = self.parse_action(action)
        env = self.load_env(trajectory_id)
        done, valid = False, is_valid
        if not is_valid:
            observation = ""
        elif "photo" in call:
            url = "data:image/png;base64," + base64.b64encode(b"p" * call["photo"]).decode()
            observation = {"obs": "before <image> after", "image": url}
        elif "pay" in call:
            observation, done = {"obs": "paid", "reward": 0.5, "metrics": {"price": 3}}, True
        elif "drop" in call:
            raise RuntimeError("the basket fell")
        else:
            time.sleep(call.get("after", 0))
            with open(env["path"], "a", encoding="utf-8") as file:
                file.write(f"{call['put']}\n" if "put" in call else "")
            with open(env["path"], encoding="utf-8") as file:
                things = file.read().splitlines()
            observation = (
                f"{len(things)} from {extra_field.get('shop', 'a shop')}: {', '.join(things)}"
            )
        self.update_env(trajectory_id, env, call, is_valid, extra_field, observation)
        self.save_env(trajectory_id, env)
        return observation, done, valid
