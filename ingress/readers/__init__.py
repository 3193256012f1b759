"""How a model writes tool calls: one reader for each form, chosen by name in [ingress].

types.py       the interface of a reader
hermes.py      <tool_call>{"name", "arguments"}</tool_call>
qwen3_xml.py   <tool_call><function=NAME><parameter=KEY>...
llama_json.py  {"name", "parameters"} as the whole text

A reader never repairs a call. An ill-formed call comes back as text, with a note.
"""
