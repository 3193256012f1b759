"""Which hosts a browser may reach, what a policy may ask of it, how a page is put into words."""

from typing import Any

import pytest

from toolsvc.errors import StartError
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.registry import make_registered
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tools.browser.allow import AllowList
from toolsvc.tools.browser.browser_tool import BrowserOptions, BrowserTool

LIST = AllowList.parse(["Example.org", "*.example.net", "127.0.0.1:8080", "[::1]:80"])


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org",
        "HTTPS://EXAMPLE.ORG:8443/x?y#z",
        "https://a.example.net/",
        "https://a.b.example.net/",
        "http://127.0.0.1:8080/",
        "http://[::1]/",
        "http://user:word@example.org/",
    ],
)
def test_what_is_on_the_list(url: str) -> None:
    assert LIST.permits(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org.evil.com/",
        "http://notexample.org/",
        "http://www.example.org/",
        "https://example.net/",
        "http://127.0.0.1/",
        "http://127.0.0.1:8081/",
        "http://[::1]:8080/",
        "http://example.org@evil.com/",
        "ftp://example.org/",
        "file://example.org/etc/passwd",
        "ws://example.org/",
        "javascript:alert('http://example.org')",
        "view-source:http://example.org/",
        "example.org",
        "http://example.org:port/",
        "http://[::1",
        "",
    ],
)
def test_what_is_not(url: str) -> None:
    assert not LIST.permits(url)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "*",
        "*.",
        "http://example.org",
        "example.org/x",
        "a b",
        "a;b",
        "a:0",
        "a:x",
        "a:99999",
        "a*b",
    ],
)
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(ValueError, match="is no host"):
        AllowList.parse([host])


def test_chromium_connects_to_the_list_alone() -> None:
    proxy, direct = LIST.switches("127.0.0.1:9")
    assert proxy == "--proxy-server=127.0.0.1:9"
    hosts = "example.org;*.example.net;127.0.0.1:8080;[::1]:80"
    assert direct == f"--proxy-bypass-list=<-loopback>;{hosts}"


@pytest.fixture(scope="module")
def tool() -> BrowserTool:
    return BrowserTool(BrowserOptions(allow=("example.org",)), SandboxConfig())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "action: Field required"),
        ({"action": "dance"}, "Input should be 'navigate', 'click'"),
        ({"action": "navigate"}, "navigate needs url"),
        ({"action": "type", "ref": "e1"}, "type needs text"),
        ({"action": "type"}, "type needs ref and text"),
        ({"action": "click", "ref": "button"}, "ref: String should match pattern"),
        ({"action": "click", "ref": "e1 >> body"}, "ref: String should match pattern"),
        ({"action": "click", "ref": "e1", "url": "x"}, "click takes no url"),
        ({"action": "back", "submit": True}, "back takes no submit"),
        ({"action": "scroll"}, "scroll needs a direction or a ref"),
        ({"action": "scroll", "direction": "up", "ref": "e1"}, "scroll needs a direction or a ref"),
        ({"action": "read", "start": -1}, "start: Input should be greater"),
        ({"action": "read", "colour": "red"}, "colour: Extra inputs"),
        ({"action": "navigate", "url": "x" * 5000}, "url: String should have at most 4096"),
    ],
)
def test_actions_that_make_no_sense(
    tool: BrowserTool, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidAction, match=says):
        tool.make_arguments(arguments)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "browser.allow: Field required"),
        ({"allow": []}, "name the hosts"),
        ({"allow": "example.org,*"}, "is no host"),
        ({"allow": "example.org", "width": 100_000}, "browser.width"),
        ({"allow": "example.org", "colour": "red"}, "options of browser"),
    ],
)
def test_options_that_make_no_sense_are_one_sentence(options: dict[str, Any], says: str) -> None:
    with pytest.raises(StartError, match=says):
        make_registered("browser", options, SandboxConfig())
