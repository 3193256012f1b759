"""Takes out of texts and tables what must not leave the machine: keys, tokens, passwords, names.

A secret is known by its name (TOOLWRIGHT_TOKEN=...), or by its form: an AWS key, a PEM block, a
bearer header, USER:PASSWORD@ in a URL. Values of the environment's secret variables are known
exactly. In doubt a value is removed: a missing hash costs a question, a leaked token an account.

Invariants
- Time is linear in the text: every pattern is bounded, PEM blocks are found by hand.
- What was redacted once is the same after a second time.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GONE = "<redacted>"
SHORTEST = 6
"""Shortest value that is searched for: shorter ones occur in innocent words."""
_DEEPEST = 40
_PEM_BYTES = 20_000

_COLUMNS = (
    *("answer", "question", "prompt", "text", "input", "output", "target", "label", "image"),
    *("images", "messages", "reward", "task", "group", "sort", "index", "column", "public"),
)
"""Before `_key`: names of a column, or of what is not secret."""
_ROUNDS = ("forward", "backward", "first", "second", "one", "two", "single")
"""Before `pass`: one of several over the data."""
_WORD = (
    r"(?:tokens?|secrets?|passwd|passwords?|passphrases?|pwd|api[_-]?keys?|"
    r"access[_-]?keys?(?:[_-]?ids?)?|"
    r"(?:secret|private|signing|account|encryption|ssh|session|tls)[_-]?keys?|credentials?|"
    r"authorization|cookies?|sas|dsns?|signatures?|webhooks?(?:[_-]?urls?)?|headers|"
    rf"{''.join(f'(?<!{word})' for word in _COLUMNS)}[_-]keys?|"
    rf"{''.join(f'(?<!{word}[_ -])' for word in _ROUNDS)}(?<![A-Za-z0-9])pass|"
    r"[_-]pat|(?<![A-Za-z0-9])sig)"
)
"""What the name of a secret ends in."""
_SECRET_NAME = re.compile(rf"(?P<before>.*?){_WORD}", re.I | re.S)
_PLURAL = re.compile(r"(?:tokens|keys|cookies|signatures|headers)\\?[\"']?[\s:=>]{1,20}\Z", re.I)
_FOLDERS = ("PWD", "OLDPWD")
"""Environment variables with folders of the shell, which are no passwords."""
_INNOCENT = re.compile(
    r"(?<![A-Za-z0-9])(?:pad|eos|bos|unk|stop|sep|cls|mask|per|a|image|video)[_-]\Z", re.I
)
"""Before `token`: names of a tokenizer's own tokens."""
# Both always match once a quote or another character is there, so no start is tried twice.
_VALUE = (
    r"(?P<value>\[[^\[\]]{0,4000}+\]|\{[^{}]{0,4000}+\}|"
    r"\\\"[^\"\\\n]*(?:\\\")?|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?"
    r"|[^\s\"']\S*)"
)
_ASSIGNED = re.compile(
    rf"(?P<head>{_WORD}\\?[\"']?[ \t]{{0,8}}(?:=>|[:=])[ \t]{{0,8}}"
    rf"(?:(?:bearer|basic|token)[ \t]{{1,4}})?){_VALUE}",
    re.I,
)
_OPTION = re.compile(rf"(?P<head>{_WORD}\\?[\"']?(?:,[ \t]{{0,8}}|[ \t]{{1,8}})){_VALUE}", re.I)
_IS_OPTION = re.compile(r"(?:\A|[\s\"'\[(])-{1,2}[A-Za-z0-9_.-]{0,60}\Z")
_SCHEME = re.compile(
    r"(?P<head>\b(?:bearer|basic|negotiate|digest)[ \t]{1,4})(?P<value>[A-Za-z0-9._~+/=:-]{6,})",
    re.I,
)
_LOGIN = re.compile(
    r"(?P<head>(?:\A|[\s\"'])(?:-u|--user|--proxy-user)(?:[ \t]{1,4}|=))"
    r"(?P<value>[^\s:\"']{1,400}:\S+)"
)
_QUERY = re.compile(
    r"(?P<head>[?&](?:key|auth|code|apikey|appid|pw)=)(?P<value>[^&#\s\"'\\]{1,4000})", re.I
)
_HEADER_NAMES = r"(?:set-cookie|cookie|(?:proxy-)?authorization)[ \t]{0,8}:[ \t]{0,8}"
_HEADER_LINE = re.compile(
    rf"(?P<head>(?<![\"'A-Za-z0-9-]){_HEADER_NAMES})(?P<value>[^\s\"'][^\n]{{0,8000}})", re.I
)
"""A header goes to the end of its line."""
_HEADER_QUOTED = re.compile(
    rf"(?P<head>[\"']{_HEADER_NAMES})(?P<value>[^\s\"'][^\n\"']{{0,8000}})", re.I
)
"""Or of the quotation that begins with its name."""
_HEADER_OPTION = re.compile(
    r"(?P<head>(?:\A|[\s\"'])(?:-H|--header)(?:[ \t]{1,4}|=)[\"']?[A-Za-z0-9-]{1,80}:[ \t]{0,8})"
    r"(?P<value>[^\s\"'][^\n\"']{0,8000})"
)
_NETRC = re.compile(
    r"(?P<head>\b(?:default|(?:machine|login)\s{1,8}\S{1,200})\s{1,8}"
    r"(?:account\s{1,8}\S{1,200}\s{1,8})?password\s{1,8})(?P<value>\S{1,400})"
)
_YAML_KEY = re.compile(
    r"(?P<indent>[ \t]{0,80}(?:- ){0,4})[\"']?(?P<name>[A-Za-z0-9_. -]{1,200}?)[\"']?[ \t]{0,8}:"
    r"[ \t]{0,8}(?:[|>][0-9+-]{0,2})?[ \t]{0,8}\r?\n?\Z"
)
"""A line whose value is on the lines below it."""
_NUMBER = re.compile(r"[-+]?[0-9][0-9_.,eE+-]{0,30}[,;)\]}]{0,3}")
_UNBROKEN = re.compile(r"[^\s\"]+")
_FORMS = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,400}"  # OpenAI, Anthropic
    r"|\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,400}"  # Stripe
    r"|\bhf_[A-Za-z0-9]{16,400}"
    r"|\bgh[pousr]_[A-Za-z0-9]{16,400}|\bgithub_pat_[A-Za-z0-9_]{16,400}"
    r"|\bglpat-[A-Za-z0-9_-]{16,400}"
    r"|\bxox[a-z]-[A-Za-z0-9-]{10,400}"
    r"|\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}\b"
    r"|\bAIza[A-Za-z0-9_-]{30,400}|\bya29\.[A-Za-z0-9._-]{16,400}"
    r"|\bnpm_[A-Za-z0-9]{16,400}|\bpypi-[A-Za-z0-9_-]{16,400}|\bdapi[0-9a-f]{16,400}"
    r"|\bey[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,4000}(?:\.[A-Za-z0-9_-]{0,4000})?"  # JWT
    r"|\blocal-[0-9a-f]{32,400}"  # W&B, self-hosted
    r"|\bhooks\.slack\.com/[a-z]{1,20}/[A-Za-z0-9/_-]{8,400}"
    r"|\bdiscord(?:app)?\.com/api/webhooks/[A-Za-z0-9/_-]{8,400}"
    # A folder of Hugging Face's cache is called after a commit.
    r"|(?<![A-Za-z0-9])(?<!/snapshots/)[0-9a-fA-F]{32,4000}(?![A-Za-z0-9])"
)
_LONG = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+_-][A-Za-z0-9+/_-]{31,4000}={0,2}")
_MAIL = re.compile(
    r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,6}"
)
_HOMES = re.compile(r"(?P<head>/(?:home|Users)/)[^/\s\"':,;\\]{1,100}")
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactor:
    """What is known to be secret here. `values` are taken out wherever they stand."""

    values: Sequence[str] = ()
    names: Mapping[str, str] | None = field(default_factory=dict)
    """Names of this user and machine, by their replacements. None: names of users, machines and
    mails stay, for output that must work here."""

    def text(self, text: str) -> str:
        """The text without secrets."""
        for value in self.values:
            text = text.replace(value, GONE)
        text = _without_pem(text)
        text = _without_yaml(text)
        text = _UNBROKEN.sub(_without_user, text)
        text = _HEADER_LINE.sub(_keep_head, text)
        text = _HEADER_QUOTED.sub(_keep_head, text)
        text = _HEADER_OPTION.sub(_keep_head, text)
        text = _QUERY.sub(_keep_head, text)
        text = _NETRC.sub(_keep_head, text)
        text = _SCHEME.sub(_keep_head, text)
        text = _LOGIN.sub(_keep_head, text)
        text = _ASSIGNED.sub(_keep_head, text)
        text = _OPTION.sub(_keep_head_of_option, text)
        text = _FORMS.sub(GONE, text)
        text = _LONG.sub(_without_random, text)
        if self.names is None:
            return text
        for name, stands in self.names.items():
            text = text.replace(name, stands) if "/" in name else _word(name).sub(stands, text)
        text = _HOMES.sub(r"\g<head>[user]", text)
        return _MAIL.sub("[mail]", text)

    def data(self, value: Any, depth: int = 0) -> Any:
        """JSON data without secrets: texts under a secret name, and what `text` finds in others."""
        if depth > _DEEPEST:
            return GONE
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): GONE
                if is_secret(str(name)) and _holds_text(inner)
                else self.data(inner, depth + 1)
                for name, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [
                self._word(before, inner) if isinstance(inner, str) else self.data(inner, depth + 1)
                for before, inner in zip([None, *value], value, strict=False)
            ]
        return value

    def table(self, values: Mapping[str, str]) -> dict[str, str]:
        """Dotted keys with their values as JSON, both as they are shown."""
        return {
            self.text(key): json.dumps(
                self.data({key: json.loads(value)}).popitem()[1], ensure_ascii=False
            )
            for key, value in values.items()
        }

    def words(self, words: Sequence[str]) -> list[str]:
        """A command line without secrets, word by word: a value ends where its word ends."""
        return [
            self._word(before, word) for before, word in zip([None, *words], words, strict=False)
        ]

    def _word(self, before: Any, word: str) -> str:
        if _is_option(before):
            return GONE
        name, assigned, value = word.partition("=")
        if value and not name[-200:].count(" ") and is_secret(name):
            return f"{self.text(name)}{assigned}{GONE}"
        return self.text(word)


def redactor(
    environment: Mapping[str, str] | None = None, more: Iterable[str] = (), *, names: bool = True
) -> Redactor:
    """For this process's user, machine and environment; `more`: further secret values; names:
    whether user, machine and mails go, too."""
    environment = os.environ if environment is None else environment
    values = {v for name, v in environment.items() if is_secret(name) and name not in _FOLDERS}
    values |= {value.strip() for value in (*values, *more)}
    values = {value for value in values if not _NUMBER.fullmatch(value)}  # a limit of tokens
    return Redactor(
        values=sorted((v for v in values if len(v) >= SHORTEST), key=len, reverse=True),
        names=_names() if names else None,
    )


def is_secret(name: str) -> bool:
    """Whether what has this name is a secret: an environment variable, a key, an option."""
    found = _SECRET_NAME.fullmatch(name[-200:])
    return found is not None and _INNOCENT.search(found["before"]) is None


def _keep_head(found: re.Match[str]) -> str:
    head, value = found["head"], found["value"]
    if value.strip("\\\"'") in ("", GONE, "null", "None", "true", "false"):
        return found[0]
    if _PLURAL.search(head) and _NUMBER.fullmatch(value):
        return found[0]  # a count of tokens
    if _INNOCENT.search(found.string, max(0, found.start() - 12), found.start()):
        return found[0]
    if value.startswith("\\"):
        return f'{head}\\"{GONE}\\"'
    quote = value[0] if value[0] in "\"'" else ""
    return f"{head}{quote}{GONE}{quote}"


def _keep_head_of_option(found: re.Match[str]) -> str:
    before = found.string[max(0, found.start() - 64) : found.start()]
    return _keep_head(found) if _IS_OPTION.search(before) else found[0]


def _without_user(found: re.Match[str]) -> str:
    """scheme://USER:PASSWORD@host, whatever a password holds."""
    text = found[0]
    begin, end = text.find("://"), text.rfind("@")
    return f"{text[: begin + 3]}{GONE}{text[end:]}" if 0 <= begin < end else text


def _without_random(found: re.Match[str]) -> str:
    """Long mixtures of both cases and digits are keys; paths and names of metrics are not."""
    text = found[0]
    kinds = (str.isupper, str.islower, str.isdigit)
    random = all(any(map(kind, text)) for kind in kinds) and len(set(text)) > 14
    words = text.count("/") > 4 or text.count("_") > 6 or text.count("-") > 6
    return GONE if random and not words else text


def _without_yaml(text: str) -> str:
    """Values on the lines below a secret's name, as YAML has them: those that are further in, and
    the entries of a list."""
    if ":" not in text:
        return text
    out: list[str] = []
    inside = -1
    for line in text.splitlines(keepends=True):
        if inside >= 0:
            bare = line.lstrip(" \t")
            depth = len(line) - len(bare)
            if not bare.strip() or depth > inside or (depth == inside and bare.startswith("- ")):
                ending = line[len(line.rstrip("\r\n")) :]
                out.append(f"{line[:depth]}{GONE}{ending}" if bare.strip() else line)
                continue
            inside = -1
        found = _YAML_KEY.match(line) if line.rstrip()[-1:] in (":", "|", ">", "-", "+") else None
        if found is not None and is_secret(found["name"]):
            inside = len(found["indent"])
        out.append(line)
    return "".join(out)


def _without_pem(text: str) -> str:
    """Private keys, whole, cut off at their end (_PEM_BYTES at most) or at their beginning."""
    out: list[str] = []
    at = 0
    while begin := _BEGIN.search(text, at):
        before = text[at : begin.start()]
        out.append(before)
        limit = min(len(text), begin.end() + _PEM_BYTES)
        end = _END.search(text, begin.end(), limit)
        at = end.end() if end else limit
        out.append(GONE)
    rest = text[at:]
    if end := _END.search(rest):
        head = rest[: end.start()]
        cut = max(0, len(head) - _PEM_BYTES)
        tail = _base64_tail(head[cut:])
        rest = head[: len(head) - tail] + GONE + _END.sub(GONE, rest[end.end() :])
    return "".join((*out, rest))


def _base64_tail(text: str) -> int:
    """Length of the lines of base64 at the end of `text`, back to the first other line."""
    length = 0
    for line in reversed(text.splitlines(keepends=True)):
        words = line.split()
        if not words or not re.fullmatch(r"[A-Za-z0-9+/=\\]{1,400}", words[-1]):
            break
        length += len(line)
    return length


def _holds_text(value: Any) -> bool:
    """A number or a switch under such a name is a setting, such as a budget of tokens."""
    return not (value is None or isinstance(value, bool | int | float) or value in ("", [], {}))


def _is_option(word: Any) -> bool:
    return isinstance(word, str) and word.startswith("-") and "=" not in word and is_secret(word)


def _names() -> dict[str, str]:
    found = {}
    home = str(Path.home())
    if len(home) > 1:
        found[home] = "~"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    if len(user) > 2 and user not in ("root", "user", "games", "python"):
        found[user] = "[user]"
    host = socket.gethostname()
    if len(host) > 3 and host not in ("localhost", "toolwright"):
        found[host] = "[host]"
    return found


def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])")
