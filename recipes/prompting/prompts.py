"""What the six prompting methods tell a policy, in words of this project.

{question} is replaced. Each text is the option `words` of its method; the papers' own prompts,
most of them with worked examples, are in their appendices.
"""

ANSWER = "between <answer> and </answer>, as short as it can be: <answer> Lake Constance </answer>"

DIRECT = f"""\
Answer the question. Write nothing but the answer, {ANSWER}

Question: {{question}}"""

THOUGHT = f"""\
Answer the question. Think first, step by step: say what has to be found out and find out one \
thing after the other. Then write the answer {ANSWER}

Question: {{question}}"""

RAG = f"""\
Answer the question. What a search for it finds is shown to you between <information> and \
</information>; use of it what helps, and what you know where it does not. Then write the answer \
{ANSWER}

Question: {{question}}"""

IRCOT = f"""\
Answer the question by thinking in single sentences. Write one sentence on a line of its own, \
which states the next fact that you need. After each sentence passages about it are shown to you \
between <information> and </information>; write the next sentence with what they say. As soon as \
the facts are there, write on a line of its own, in place of a sentence, the answer {ANSWER}

Question: {{question}}"""

IRCOT_READ = "Nothing more can be looked up. Write the answer between <answer> and </answer>."
IRCOT_EMPTY = "Write one sentence, or the answer between <answer> and </answer>."

SEARCH_O1 = f"""\
Answer the question by reasoning. Whenever you lack a fact or doubt one, search for it: write the \
query between <search> and </search>. The passages are shown to you between <information> and \
</information>. Read them first: write between <notes> and </notes> what in them helps the \
reasoning so far, and nothing else, or that nothing does. Then go on reasoning from your notes. \
You may search up to {{searches}} times. At the end write the answer {ANSWER}

Question: {{question}}"""

SEARCH_O1_GO_ON = "Go on with the reasoning: search again, or give the answer."
SEARCH_O1_ENOUGH = "No search is left. Write the answer now, between <answer> and </answer>."

REACT = """\
Answer the question in turns of Thought, Action and Observation.

Thought: says what is known, and what is needed next.
Action: is one of two, on a line of its own. Search[query] looks passages up. Finish[answer] ends \
the work with the answer, as short as it can be.
Observation: what the action brought. It is written for you.

The form, with another question:

Question: Into which sea does the river flow that runs through Basel?
Thought: I need the river that runs through Basel.
Action: Search[river that runs through Basel]
Observation: Doc 1(Title: Basel) Basel lies on the Rhine.
Thought: It is the Rhine, which flows into the North Sea.
Action: Finish[the North Sea]

Question: {question}"""

REACT_FORM = "no action: write a line Action: Search[query] or Action: Finish[answer]"
