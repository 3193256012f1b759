from .base import BaseTool, register_tool
from .utils.counting import longest, words


@register_tool
class WordCountTool(BaseTool):
    tool_type = "word_count"
    timeout = 5
    stop_tokens = ("</count>",)

    def get_usage_inst(self):
        return "You can count words by writing <count>text</count>."

    def parse_action(self, action):
        start = action.rfind("<count>")
        end = action.find("</count>", start)
        if start == -1 or end == -1:
            return "", False
        return action[start + len("<count>") : end], True

    def conduct_action(self, trajectory_id, action, extra_field):
        text, is_valid = self.parse_action(action)
        env = self.load_env(trajectory_id)
        if not is_valid:
            observation, done, valid = "Write <count>text</count>.", False, False
        elif not words(text):
            observation, done, valid = {"obs": "", "invalid_reason": "no words"}, False, False
        else:
            turns_left = extra_field.get("turns_left", 0)
            observation = {
                "obs": f"<result>{len(words(text))} words, {turns_left} turns left</result>",
                "longest": longest(text),
            }
            done, valid = False, True
        self.update_env(trajectory_id, env, text, is_valid, extra_field, observation)
        self.save_env(trajectory_id, env)
        return observation, done, valid
