"""Messages to token ids: a policy folder's chat template and tokenizer, without torch.

template.py    messages to text, as transformers renders them
foreign.py     keeps foreign text from spelling control tokens
turn_end.py    the token that ends an assistant's turn
tokenizer.py   the tokenizer with the template: text and messages to ids, ids to text

`engine` and `ingress` render with these. Modules here import `jinja2` and `tokenizers`.
"""

import os

# One text at a time uses one core, and a program that starts after it would warn of threads.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
