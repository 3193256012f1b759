"""Pages are decoded by their header, else by their own word, else by a guess."""

import time

import pytest

from toolsvc.tools.web_search.charset import charset_named, declared, decoded

pytestmark = pytest.mark.quick

RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 3
GERMAN = "Grüße aus Köln: „schöne Straße“ kostet 5 €. " * 3
JAPANESE = "日本の首都は東京です。これは試験のための文章です。" * 3
CHINESE = "清华大学的校训是自强不息厚德载物。" * 5
KOREAN = "한국어 문장은 이렇게 생겼습니다. " * 5


def page(text: str, head: str = "") -> str:
    return f"<html><head>{head}<title>t</title></head><body><p>{text}</p></body></html>"


@pytest.mark.parametrize(
    ("text", "charset", "head", "header"),
    [
        (RUSSIAN, "cp1251", "", "windows-1251"),
        (RUSSIAN, "cp1251", "<meta charset=utf-8>", "Windows-1251"),
        (RUSSIAN, "koi8-r", '<meta charset="KOI8-R">', None),
        (RUSSIAN, "cp1251", "<meta charset='x-cp1251'>", "no-such-charset"),
        (GERMAN, "cp1252", "", "iso-8859-1"),
        (GERMAN, "cp1252", "", "us-ascii"),
        (GERMAN, "utf-8", "", '"utf-8"'),
        (GERMAN, "utf-8", "<meta charset=utf-16>", None),
        (
            JAPANESE,
            "cp932",
            '<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=x-sjis">',
            None,
        ),
        (JAPANESE, "euc_jp", "<!-- <meta charset=utf-8> --><meta charset = euc-jp >", None),
        (JAPANESE, "iso2022_jp", "<meta charset=iso-2022-jp>", None),
        (CHINESE, "gb18030", "<meta charset=gb2312>", None),
        (CHINESE, "gb18030", f"<!-- {'x' * 3000} --><meta charset=gbk>", None),
        (KOREAN, "cp949", "<meta charset=ks_c_5601-1987>", None),
        (RUSSIAN, "utf-8-sig", "<meta charset=windows-1251>", "koi8-r"),
        (RUSSIAN, "utf-16", "", "windows-1251"),
    ],
)
def test_a_page_is_read_by_the_charset_that_it_has(
    text: str, charset: str, head: str, header: str | None
) -> None:
    whole = page(text, head)
    assert decoded(whole.encode(charset), header=header) == whole


def test_an_xml_declaration_counts() -> None:
    whole = f'<?xml version="1.0" encoding="windows-1251"?>{page(RUSSIAN)}'
    assert decoded(whole.encode("cp1251")) == whole


@pytest.mark.parametrize(
    ("text", "charset"),
    [(RUSSIAN, "cp1251"), (JAPANESE, "cp932"), (CHINESE, "gb18030"), (KOREAN, "cp949")],
)
def test_a_page_that_says_nothing_is_guessed(text: str, charset: str) -> None:
    assert text in decoded(page(text).encode(charset))


def test_a_page_cut_in_a_character_is_still_utf_8() -> None:
    assert decoded(page(JAPANESE).encode()[:60]).startswith("<html><head>")
    body = JAPANESE.encode()[:-1]
    assert decoded(body) == JAPANESE[:-1] + "\ufffd"


def test_plain_text_declares_nothing() -> None:
    text = f"<meta charset=koi8-r> {GERMAN}"
    assert decoded(text.encode(), markup=False) == text


@pytest.mark.parametrize(
    "name",
    ["", "hex", "zlib", "rot13", "idna", "punycode", "unicode_escape", "undefined", "utf-7", "\0"],
)
def test_names_that_are_not_charsets_of_pages(name: str) -> None:
    assert charset_named(name) is None


@pytest.mark.parametrize(
    "body",
    [
        b"<meta " * 300_000,
        b"<!--" * 400_000,
        b"<" * 1_600_000,
        b"<?xml" + b" " * 1_000_000,
        b"<meta charset=" * 100_000,
        b"\xff\xfd" * 800_000,
        b"\xe9" * 1_600_000,
    ],
)
def test_reading_is_bounded(body: bytes) -> None:
    began = time.process_time()
    decoded(body)
    assert time.process_time() - began < 3


def test_a_script_is_not_a_declaration() -> None:
    assert declared(b"<script>var a = 'charset=koi8-r'</script><meta name=x content=y>") is None
