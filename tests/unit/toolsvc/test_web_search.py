import pytest

from toolsvc.plugin.actions import InvalidAction
from toolsvc.tools.web_search.fetch import is_public
from toolsvc.tools.web_search.results import distinct, same_page
from toolsvc.tools.web_search.types import WebHit
from toolsvc.tools.web_search.web_search_tool import LONGEST, find_request


@pytest.mark.parametrize(
    ("action", "text", "visit"),
    [
        ("<think>which?</think><search> two\nwords </search>", "two words", False),
        ("<visit>https://a.org/b</visit>", "https://a.org/b", True),
        ("<search>a</search> then <visit>b</visit>", "b", True),
        ("<visit>b</visit> then <search>a</search>", "a", False),
        ("<search>what is <search></search>", "what is <search>", False),
    ],
)
def test_the_block_that_ends_last_counts(action: str, text: str, visit: bool) -> None:
    assert find_request(action) == (text, visit)


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ("search", "neither"),
        ("a</visit>", "</visit> without <visit>"),
        ("<search> \n</search>", "nothing between"),
        (f"<search>{'a' * (LONGEST + 1)}</search>", "more than 2000 characters"),
    ],
)
def test_what_cannot_be_asked_for_is_invalid(action: str, says: str) -> None:
    with pytest.raises(InvalidAction, match=says):
        find_request(action)


@pytest.mark.parametrize(
    "other",
    [
        "http://example.org/a?x=1&y=2",
        "https://www.example.org/a/?y=2&x=1",
        "HTTPS://Example.org:443/a?x=1&y=2#part",
        "https://example.org/a?utm_source=feed&x=1&y=2",
    ],
)
def test_addresses_of_one_page_are_equal(other: str) -> None:
    assert same_page(other) == same_page("https://example.org/a?x=1&y=2")


def test_addresses_of_two_pages_are_not() -> None:
    urls = [
        "https://a.org/",
        "https://b.org/",
        "https://a.org/b",
        "https://a.org/?q=1",
        "http://[::1",
    ]
    assert len({same_page(url) for url in urls}) == len(urls)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"],
)
def test_addresses_of_the_public_internet(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0",
        "fd00::1", "ff02::1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2", "::127.0.0.1",
    ],
)  # fmt: skip
def test_addresses_of_the_operator_s_own_network(address: str) -> None:
    assert not is_public(address)


def hit(url: str, snippet: str = "s") -> WebHit:
    return WebHit(title="T", url=url, snippet=snippet)


def test_each_page_is_shown_once_and_answers_without_a_page_stay() -> None:
    hits = [hit(""), hit("http://a.org"), hit("https://a.org/"), hit(""), hit("http://b.org")]
    assert distinct(hits, 10) == [hits[0], hits[1], hits[3], hits[4]]
    assert distinct(hits, 2) == hits[:2]
