"""A scripted customer: replies by rules over a task's instructions; pure.

The instructions of a task address the customer: "You want to cancel your reservation. If the agent
says that it is not possible, mention that ...". The script turns them into the first person and
says each line once. A request for data gets the known facts. A refusal gets the lines that an `If`
reserved for it. A request for confirmation gets a yes.

The script neither weighs an offer nor judges a price, and it leaves out stage directions ("Be
persistent"). A model in its place would follow the instructions more closely.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

YES = "Yes, please go on."
LAST = "That is all that I can say. Please do what you can."
_TRANSFERRED = re.compile(r"being transferred to a human|transferred you to a human", re.IGNORECASE)
_ASKS_DATA = re.compile(
    r"user id|reservation (?:id|number|code)|confirmation (?:number|code)|your (?:full )?name"
    r"|identify you",
    re.IGNORECASE,
)
_ASKS_YES = re.compile(
    r"\bconfirm\b|\bproceed\b|\(yes\b|\byes or no\b|\bgo ahead\b|shall i\b|should i\b"
    r"|would you like me to\b|do you want me to\b|do you agree\b",
    re.IGNORECASE,
)
_REFUSES = re.compile(
    r"\bcan ?not\b|\bcan't\b|\bunable\b|\bnot (?:possible|allowed|able|eligible|permitted)\b"
    r"|\bunfortunately\b|\bagainst\b|\bisn't possible\b",
    re.IGNORECASE,
)
_MORE = re.compile(r"(?:anything|something) else|further (?:help|assistance)", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_CONDITION = re.compile(
    r"^If (?:and only if )?(?P<when>[^,]*), (?:then )?(?P<then>.+)$", re.IGNORECASE
)
_SPEAKS = re.compile(r"^(?:mention|say|tell (?:the )?agent|insist|state) (?:that )?(?!on )", re.I)
_WANTS = re.compile(r"^(?:first, )?(?:then )?try to\b", re.IGNORECASE)
_ENDS = re.compile(r"\bend the (?:call|conversation)\b|\bmove on\b", re.IGNORECASE)
_DIRECTION = re.compile(
    r"^(?:you(?:'re| are) (?:very |a bit |also |extremely )?"
    r"(?:persistent|upset|terse|impatient|insistent|not happy|absent|busy|calm|emotional"
    r"|distraught)"
    r"|you will never|be|don't|do not|under no|never|always|make sure|in the middle|halfway|first"
    r"|for that you|only after|use|when|after|before|even|otherwise|this is|but|insist|if)\b",
    re.IGNORECASE,
)
_BEFORE_OBJECT = (
    "for|to|with|by|from|of|tell|tells|told|give|gives|let|ask|asks|help|allows|caused|compensate"
    "|refund|upgrade|make"
)
_FIRST_PERSON = [
    (re.compile(rf"\b({_BEFORE_OBJECT}) you\b(?! are\b)", re.IGNORECASE), r"\1 me"),
    (re.compile(r"\byou(?=[.!?,]|$)", re.IGNORECASE), "me"),
    (re.compile(r"\byou are\b", re.IGNORECASE), "I am"),
    (re.compile(r"\byou were\b", re.IGNORECASE), "I was"),
    (re.compile(r"\byou're\b", re.IGNORECASE), "I'm"),
    (re.compile(r"\byourself\b", re.IGNORECASE), "myself"),
    (re.compile(r"\byour\b", re.IGNORECASE), "my"),
    (re.compile(r"\byou\b", re.IGNORECASE), "I"),
    (re.compile(r"\b(?:the )?(?:service )?agent (ask|show|give|use|say|offer)s\b"), r"you \1"),
    (re.compile(r"\bthe (?:service |customer service )?agent\b", re.IGNORECASE), "you"),
]


def opening(instructions: Mapping[str, str | None]) -> str:
    """The customer's first message: the reason for the call."""
    sentences = _sentences(instructions.get("reason_for_call"))
    return " ".join(_spoken(one) for one in sentences if not _DIRECTION.match(one))


def reply(instructions: Mapping[str, str | None], said: Sequence[str], message: str) -> str | None:
    """The reply to an agent's message; None if the customer ends the conversation.

    instructions: `known_info`, `unknown_info`, `reason_for_call` and `task_instructions` of a task.
    said: earlier replies, in order. The same arguments give the same reply.
    """
    if _TRANSFERRED.search(message):
        return None
    facts = " ".join(map(_first_person, _sentences(instructions.get("known_info"))))
    if facts and facts not in said and _ASKS_DATA.search(message):
        return facts
    if _ASKS_YES.search(message) and not _REFUSES.search(message) and not _MORE.search(message):
        return YES
    wishes, protests = _lines(instructions)
    first = (protests, wishes) if _REFUSES.search(message) else (wishes,)
    fresh = [line for lines in first for line in lines if line not in said]
    if fresh:
        return fresh[0]
    if "?" in message and not _MORE.search(message) and LAST not in said:
        return LAST
    return None


def _lines(instructions: Mapping[str, str | None]) -> tuple[Sequence[str], Sequence[str]]:
    """(wishes, protests): lines to say in turn, and lines to say after a refusal."""
    wishes, protests = [], []
    texts = (instructions.get("unknown_info"), instructions.get("task_instructions"))
    for sentence in (one for text in texts for one in _sentences(text)):
        condition = _CONDITION.match(sentence)
        if _ENDS.search(sentence):
            continue
        if condition is not None:
            protests.append(_spoken(condition["then"], "you "))
        elif not _DIRECTION.match(sentence):
            wishes.append(_spoken(sentence))
    return wishes, protests


def _spoken(direction: str, subject: str = "") -> str:
    """What a direction makes the customer say: "mention that you are ill" is "I am ill".

    subject: begins a direction without one, such as "downgrade all passengers".
    """
    plain, speaks = _SPEAKS.subn("", _WANTS.sub("you want to", direction))
    own = speaks or re.match(r"you\b|your\b", plain, re.IGNORECASE)
    return _first_person(plain if own else f"{subject}{plain}")


def _first_person(sentence: str) -> str:
    for pattern, words in _FIRST_PERSON:
        sentence = pattern.sub(words, sentence)
    return sentence[:1].upper() + sentence[1:]


def _sentences(text: str | None) -> Iterator[str]:
    parts = (" ".join(part.split()) for part in _SENTENCE.split(text or ""))
    return (part for part in parts if part)
