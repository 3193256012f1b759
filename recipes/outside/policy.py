"""Makes the untrained policy: the calculator's tiny Qwen3, with a chat template that shows tools.

python -m toolwright.script policy.py --output untrained --seed 1
"""

from __future__ import annotations

from pathlib import Path

from toolwright.model.tiny_policy import tags_of, tiny_policy

from .demonstrations import conversations

TEMPLATE = Path(__file__).with_name("template.jinja").read_text(encoding="utf-8")
write, main = tiny_policy(conversations, tags=tags_of("tool_call"), sample=4000, template=TEMPLATE)
