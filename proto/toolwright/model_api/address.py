"""URLs of an API's methods, from an address as users write it. Pure.

An address that ends in a method (`/chat/completions`) is used as it is. A path that names a version
is a base as it is. Any other base gets `/v1`, and its methods are also tried without.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

METHODS = ("/chat/completions", "/completions")


class ApiAddress:
    """One server. `base`: the URL that its methods are below, as far as it is known."""

    def __init__(self, given: str) -> None:
        parts = urlsplit(given.strip())
        path = parts.path.rstrip("/")
        method = next((one for one in METHODS if path.endswith(one)), "")
        path = path.removesuffix(method)
        self._parts = parts._replace(path="", fragment="")
        versioned = any(part[:1] == "v" and part[1:2].isdigit() for part in path.split("/"))
        self._paths = [path] if method or versioned else [f"{path}/v1", path]

    @property
    def base(self) -> str:
        """The likeliest base, without a query."""
        return urlunsplit(self._parts._replace(path=self._paths[0], query=""))

    def urls(self, method: str) -> list[str]:
        """URLs of a method such as `/chat/completions`, the likeliest first. Each has the query of
        the address, such as an API version."""
        return [urlunsplit(self._parts._replace(path=path + method)) for path in self._paths]

    def found(self, url: str, method: str) -> None:
        """Records that the API answered at this URL: `urls` gives no other from now on."""
        path = urlsplit(url).path.removesuffix(method)
        if path in self._paths:
            self._paths = [path]
