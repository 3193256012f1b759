"""What SEARL's policy is told: before its plan, and before its steps.

Words in braces are replaced: {question}, {plan}, {most} (subtasks), {base_tools}, {tools} (those
that the memory recommends), {create} (the tool that makes tools). Every text is an option of the
protocol; none of them is the paper's own wording (its appendix F has that).
"""

PLAN = """\
Before you solve the task, write a plan for it and nothing else.

Cut the task into at most {most} subtasks ST1, ST2, ... and say which depends on which: \
(ST1, ST2) means that ST2 needs what ST1 finds. A subtask that depends on nothing stands alone: \
(ST1,). Then give each subtask a section with numbered steps. A step is one concrete action that a \
tool or a line of thought can do; the last subtask checks the result. Where you are not sure of a \
fact, plan to look it up.

An example of the form:

##DAG_LIST
[(ST1, ST3), (ST2, ST3)]
##ST1: Area of the field
1. Multiply the two sides.
##ST2: Seed for one square metre
1. Look the quantity up.
##ST3: Seed for the field, and a check
1. Multiply area and quantity.
2. Divide again and compare.
"""

EXECUTION = """\
Now carry the plan out, one step a turn. A step has exactly these parts, in this order:

<subtask> ST1: the subtask that you work on </subtask>
<thinking> what you know, and what you do next </thinking>
<tool_call>{"name": "a tool", "arguments": {"its": "arguments"}}</tool_call>

The answer of the tool follows, then your next step. In the last step write, in place of the call:

<answer> what was found, and \\boxed{the result alone} </answer>

A tool that is missing can be made, once for good:

<tool_call>{"name": "{create}", "arguments": {"name": "circle_area", "description": "area of a \
circle by its radius", "arguments": {"radius": {"type": "number"}}, "returns": "the area", "code": \
"import math\\ndef circle_area(radius):\\n    return math.pi * radius ** 2", "inputs": {"radius": \
2}}}</tool_call>

Make a tool only for what will be needed again, one a step at most, under a name that no tool has. \
Its code stands alone: it imports what it needs and keeps nothing. A recommended tool that fits is \
better than a new one.

Task: {question}

Plan:
{plan}

Tools:
{base_tools}

Recommended for this plan, made in earlier tasks:
{tools}
"""

ITEM = "- {name}({arguments}): {description}\n"
NONE = "(none yet)\n"
