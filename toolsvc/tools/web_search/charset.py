"""How the bytes of a page become text.

Owns the order: a byte-order mark, the charset of the HTTP header, the one that the page declares
(`<meta charset>`, `http-equiv`, XML declaration), then a guess. Names are read as browsers read
them (WHATWG Encoding Standard, 4.2): `iso-8859-1` means windows-1252, `gb2312` means gb18030.
Names that are not charsets of pages are skipped.

Invariants
- Decoding never fails: a byte that the charset lacks becomes U+FFFD.
- Codecs that run programs or take more than linear time (`idna`, `unicode_escape`) have no name.
- At most DECLARED_WITHIN bytes are searched for a declaration, in linear time.

The guess needs charset-normalizer (extra `toolsvc`).
"""

from __future__ import annotations

import codecs
import re

DECLARED_WITHIN = 16 * 1024
"""Bytes in which a page's declaration is looked for. The standard says 1024; pages do not."""
_GUESSED_FROM = 10_000
"""Bytes that the guess looks at."""
_TAG_BYTES = 1024
"""Bytes of one tag."""
_FALLBACK = "cp1252"
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LARGER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
"""The charset that holds all of another and is meant where pages name the other."""
_OTHER_NAMES = {
    "x-sjis": "shift_jis",
    "x-gbk": "gbk",
    "x-euc-jp": "euc_jp",
    "x-user-defined": "cp1252",
    "unicode": "utf-8",
    "utf8mb4": "utf-8",
    "dos-874": "cp874",
    "windows-874": "cp874",
    "windows-949": "cp949",
    "windows-31j": "cp932",
    "x-mac-cyrillic": "mac-cyrillic",
    "x-mac-roman": "mac-roman",
    "x-cp1251": "cp1251",
    "x-cp1252": "cp1252",
    "ks_c_5601-1987": "euc_kr",
    "iso-8859-8-i": "iso8859-8",
}
_KNOWN = re.compile(
    r"utf-(?:8|16|32)(?:-[lb]e)?|utf-8-sig|ascii|iso8859-\d+|cp(?:12\d\d|437|85\d|86\d|874|932|949|950)"
    r"|koi8-[rut]|mac-\w+|gb2312|gbk|gb18030|hz|big5(?:hkscs)?|shift_jis\w*|euc_\w+|iso2022_\w+"
    r"|johab|tis-620|kz1048|ptcp154"
)
"""Python's names of the charsets that pages are written in."""
_NAMED = re.compile(rb"charset\s*=\s*[\"']?\s*([\w.:-]{1,40})")
_XML = re.compile(rb"\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})[\"']")


def decoded(body: bytes, *, header: str | None = None, markup: bool = True) -> str:
    """The text of a page, without a byte-order mark.

    `header`: charset of the Content-Type header; None = not given. `markup`: the page may declare a
    charset itself.
    """
    for mark, name in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    found = charset_named(header) if header else None
    if found is None and markup:
        found = declared(body)
    return body.decode(found or guessed(body), "replace").removeprefix("\ufeff")


def charset_named(name: str) -> str | None:
    """The codec of a charset's name; None for a name that no page may have."""
    name = name.strip().strip("\"'").lower()
    try:
        found = codecs.lookup(_OTHER_NAMES.get(name, name)).name
    except (LookupError, ValueError, UnicodeError):
        return None
    if not _KNOWN.fullmatch(found):
        return None
    return _LARGER.get(found, found)


def declared(body: bytes) -> str | None:
    """The codec that a page declares in its beginning; None without a declaration."""
    head = body[:DECLARED_WITHIN].lower()
    at = 0
    while (at := head.find(b"<", at)) >= 0:
        if head.startswith(b"<!--", at):
            end = head.find(b"-->", at + 4)
            if end < 0:
                break
            at = end
        elif head.startswith(b"<meta", at):
            tag = head[at : at + _TAG_BYTES].partition(b">")[0]
            if (found := _of_markup(_NAMED.search(tag))) is not None:
                return found
        at += 1
    return _of_markup(_XML.match(head))


def _of_markup(match: re.Match[bytes] | None) -> str | None:
    """A page whose declaration could be read at all is not UTF-16, whatever it says."""
    found = None if match is None else charset_named(match[1].decode("ascii", "replace"))
    return "utf-8" if found is not None and found.startswith(("utf-16", "utf-32")) else found


def guessed(body: bytes) -> str:
    """The most likely codec: UTF-8 if it fits, the end of the body apart, which may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body, final=False)
    except UnicodeDecodeError:
        pass
    else:
        return "utf-8"
    from charset_normalizer import from_bytes

    for candidate in from_bytes(body[:_GUESSED_FROM]):
        found = charset_named(candidate.encoding)
        if found is not None and not found.startswith("utf-8"):
            return found
    return _FALLBACK
