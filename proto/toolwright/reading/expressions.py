"""The canonical form of a mathematical answer: its text, its number and unit, its number bases.

Pure, linear in the text's length, without computer algebra. Whether two expressions are equal is
for `tasks.judging`. Only ASCII digits are digits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from toolwright.reading.answers import normal_form, unwrapped

LONGEST = 2000
"""Longest part of a text that is read, in characters."""
LARGEST_EXPONENT = 308
"""Largest power of ten, or number of digits, that `quantity` reads: that of a float."""

_SIGNS = str.maketrans({
    "\u2212": "-", "\u2013": "-", "\u00d7": "\\times ", "\u00b7": "\\cdot ", "\u22c5": "\\cdot ",
    "\u00f7": "/", "\u03c0": "\\pi ", "\u221e": "\\infty ", "\u2205": "\\emptyset ",
    "\u2264": "\\le ", "\u2265": "\\ge ", "\u2260": "\\ne ", "\u222a": "\\cup ",
    "\u2229": "\\cap ", "\u00b0": "^\\circ ", "\u221a": "\\sqrt ", "\u00a0": " ", "\u2009": " ",
    "\u202f": " ", "\u00bd": "\\frac{1}{2}", "\u00bc": "\\frac{1}{4}", "\u00be": "\\frac{3}{4}",
})  # fmt: skip
_RAISED = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207a\u207b"
_LOWERED = str.maketrans(_RAISED, "0123456789+-")
_POWER = re.compile(f"[{_RAISED}]{{1,20}}")
_SUBSCRIPT = re.compile("[\u2080-\u2089]{1,20}")
_BELOW = str.maketrans({chr(0x2080 + digit): str(digit) for digit in range(10)})
_GROUPED = re.compile(
    r"(?<![0-9.,])[0-9]{1,3}(?:(?:\\[,;:! ]| |\{,\}){1,4}[0-9]{3})+"
    r"(?!(?:\\[,;:! ]| )?[0-9])"
)
_GROUP = re.compile(r"\\[,;:! ]| |\{,\}")
_REWRITTEN = (
    (re.compile(r"\\\$|\$|(?<!\\)\\[()\[\]]|\\!|\\displaystyle(?![A-Za-z])"), ""),
    (re.compile(r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z.])"), ""),
    (re.compile(r"(?<!\\)\\[,;:> ]|~|\\q?quad(?![A-Za-z])|\\thinspace(?![A-Za-z])"), " "),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\frac\s?([0-9])\s?([0-9])"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\varnothing(?![A-Za-z])|\\\{\s{0,8}\\\}"), r"\\emptyset "),
    (
        re.compile(r"(?<![\w.)}\\])([0-9]{1,9}) ([0-9]{1,9})/([0-9]{1,9})(?![\w.])"),
        r"\1\\frac{\2}{\3}",
    ),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\^([-+][0-9]{1,20})"), r"^{\1}"),
    (
        re.compile(r"(?<![\w.\\])([0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})[eE]\+?(-?[0-9]{1,4})(?!\w|\.[0-9])"),
        r"\1\\cdot 10^{\2}",
    ),
)  # fmt: skip
_DEGREES = re.compile(r"\^\s{0,4}\{?\s{0,4}\\circ\s{0,4}\}?|\\degree(?![A-Za-z])|\bdegrees?\b")
_TRIGONOMETRIC = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_LOOSE = re.compile(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])")

_PLAIN = re.compile(
    r"([-+]?)(?=\.?[0-9])([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{0,400})(?:\.([0-9]{0,400}))?"
    r"(?:(?:\\cdot|\\times|\*)\s?10\^\{?([-+]?[0-9]{1,4})\}?)?"
)
_POWER_OF_TEN = re.compile(r"([-+]?)10\^\{?([-+]?[0-9]{1,4})\}?")
_FRACTION = re.compile(r"([-+]?)\\frac\{([-+]?[0-9.]{1,400})\}\{([-+]?[0-9.]{1,400})\}")
_MIXED = re.compile(r"([-+]?)([0-9]{1,9})\\frac\{([0-9]{1,9})\}\{([0-9]{1,9})\}")
_SLASH = re.compile(r"([-+]?)([0-9.,]{1,400})/([0-9.,]{1,400})")
_PERCENT = re.compile(r"\s?(?:\\?%|per ?cent)$")
_UNIT = re.compile(
    r"(?<=[0-9.}])\s?(?:\\(?:text|mathrm|textrm|mbox)\s?\{([^{}]{1,40})\}"
    r"|([A-Za-z][A-Za-z /]{0,30}))"
    r"(?:\^\{?([0-9])\}?)?$"
)
_UNITS = {
    spelling: unit
    for unit, spellings in {
        "mm": "millimeter millimetre", "cm": "centimeter centimetre", "dm": "decimeter decimetre",
        "m": "meter metre", "km": "kilometer kilometre", "in": "inch inche", "ft": "foot feet",
        "yd": "yard", "mi": "mile", "mg": "milligram", "g": "gram", "kg": "kilogram",
        "lb": "pound lbs", "oz": "ounce", "ml": "milliliter millilitre", "l": "liter litre",
        "s": "sec second", "min": "minute", "h": "hour hr", "day": "", "week": "", "month": "",
        "year": "yr", "cent": "", "dollar": "usd", "euro": "", "m/s": "", "km/h": "kmh kph",
        "mph": "mi/h", "n": "newton", "j": "joule", "w": "watt", "v": "volt", "hz": "hertz",
        "k": "kelvin", "unit": "",
    }.items()
    for spelling in (unit, *spellings.split())
}  # fmt: skip
"""Unit by spelling, in lower case and the singular."""
_KNOWN = frozenset(_UNITS.values())

_BASES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "twelve": 12, "sixteen": 16, "hex": 16, "bin": 2, "oct": 8,
}  # fmt: skip
_BASED = re.compile(
    r"(?<![\w\\^}])([0-9A-Za-z]{1,400})(?:_\s?(?:\{\s?(?:\\(?:text|mathrm)\s?\{)?\s?(?:base\s?)?"
    r"([0-9]{1,2}|[a-z]{3,7})\s?\}{1,2}|([0-9]{1,2})(?!\w))"
    r"|\s\(?(?:in )?base[\s-]([0-9]{1,2}|[a-z]{3,7})\b\)?)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number with its unit.

    number: its text without unit and per cent sign. unit: "" without one; `known` says whether it
    is a unit of the table here. percent: a per cent sign follows; it does not change the value.
    """

    value: Fraction
    number: str
    unit: str = ""
    known: bool = False
    percent: bool = False


def expression(text: str) -> str:
    """The text with one spelling for what people write in many ways.

    Delimiters, currency signs, spacing commands and a final full stop go; digits in groups become
    one number; 1.5e-3 becomes a power of ten. Signs of Unicode become LaTeX commands. Degrees go
    unless the text has a trigonometric function.
    """
    text = normal_form(text[: LONGEST + 1])
    text = _POWER.sub(lambda found: "^{" + found[0].translate(_LOWERED) + "}", text)
    text = _SUBSCRIPT.sub(lambda found: "_{" + found[0].translate(_BELOW) + "}", text)
    text = _GROUPED.sub(lambda found: _GROUP.sub("", found[0]), text.translate(_SIGNS))
    for pattern, instead in _REWRITTEN:
        text = pattern.sub(instead, text)
    if not _TRIGONOMETRIC.search(text):
        text = _DEGREES.sub("", text)
    text = _LOOSE.sub("", text)
    return text if text.endswith(("...", "\\.")) else text.rstrip(".,;:")


def quantity(text: str) -> Quantity | None:
    """The number that a text is: digits, with thousands' commas, a per cent sign, a fraction, a
    power of ten, a unit after it. None for every other text and for numbers beyond a float.

    "50%" is 50: a data set that means 0.5 writes that.
    """
    body = expression(text)
    if len(body) > LONGEST:
        return None
    percent = _PERCENT.search(body) is not None
    body, unit, known = _PERCENT.sub("", body), "", False
    if found := _UNIT.search(body):
        unit = _unit(found[1] or found[2])
        known = unit in _KNOWN
        if found[1] is None and not known:
            return None
        unit += f"^{found[3]}" if found[3] else ""
        body = body[: found.start()]
    value = _value(body)
    if value is None:
        return None
    return Quantity(value=value, number=body, unit=unit, known=known, percent=percent)


def bases(text: str) -> tuple[tuple[str, int], ...]:
    """Numerals that name their base, (digits, base) each, in the order of a canonical text. Base 10
    is what a numeral has without a base: it is left out."""
    found = (_numeral(one) for one in _BASED.finditer(text[:LONGEST]))
    return tuple((digits, base) for digits, base in found if base not in (0, 10))


def in_base_ten(text: str) -> str:
    """A canonical text with every numeral that names its base written in base 10."""

    def value(found: re.Match[str]) -> str:
        digits, base = _numeral(found)
        return str(int(digits, base)) if base else found[0]

    return _BASED.sub(value, text[: LONGEST + 1])


def is_expression(text: str) -> bool:
    """Whether a text is mathematics rather than words: it has a digit or a LaTeX command, and no
    two letters side by side outside of commands and units."""
    if quantity(text) is not None:
        return True
    body = expression(text)
    letters = re.sub(r"\\[A-Za-z]+", " ", unwrapped(body))
    return bool(re.search(r"[-+*/^=<>0-9\\]", body)) and not re.search(r"[^\W\d_]{2}", letters)


def _value(body: str) -> Fraction | None:
    if mixed := _MIXED.fullmatch(body):
        if not int(mixed[4]):
            return None
        value = int(mixed[2]) + Fraction(int(mixed[3]), int(mixed[4]))
        return -value if mixed[1] == "-" else value
    for pattern in (_FRACTION, _SLASH):
        if parts := pattern.fullmatch(body):
            above, below = _plain(parts[2]), _plain(parts[3])
            if above is None or not below:
                return None
            return -above / below if parts[1] == "-" else above / below
    return _plain(body)


def _plain(body: str) -> Fraction | None:
    if ten := _POWER_OF_TEN.fullmatch(body):
        body = f"{ten[1]}1\\cdot10^{{{ten[2]}}}"
    found = _PLAIN.fullmatch(body)
    if found is None:
        return None
    whole, part = (found[2] or "").replace(",", ""), found[3] or ""
    power = int(found[4] or 0)
    digits = (whole + part).lstrip("0")
    if digits and abs(len(digits) - len(part) + power) > LARGEST_EXPONENT:
        return None
    value = Fraction(int(whole + part or "0")) * Fraction(10) ** (power - len(part))
    return -value if found[1] == "-" else value


def _unit(spelling: str) -> str:
    name = " ".join(spelling.replace("~", " ").split()).lower()
    single = name if name in _UNITS else name.removesuffix("s")
    return _UNITS.get(single, single)


def _numeral(found: re.Match[str]) -> tuple[str, int]:
    """(digits, base), the digits in lower case without leading zeros; base 0 for a subscript."""
    named = found[2] or found[3] or found[4]
    base = int(named) if named.isdigit() else _BASES.get(named, 0)
    digits = found[1].lower().lstrip("0") or "0"
    if not 2 <= base <= 36:
        return digits, 0
    if not any(one.isdigit() for one in found[1]) and not (base == 16 and len(digits) > 1):
        return digits, 0
    if any(int(one, 36) >= base for one in digits):
        return digits, 0
    return digits, base
