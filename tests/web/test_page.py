"""What the page is made of: files of the package, under a strict policy, that need nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files

import httpx
import pytest
from fastapi import FastAPI
from serving import serve

from gpuwise.web.page import mount

STATIC = {entry.name: entry.read_text(encoding="utf-8") for entry in (files("gpuwise.web") / "static").iterdir()}
SCRIPTS = {name: text for name, text in STATIC.items() if name.endswith(".js")}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    app = FastAPI()
    mount(app)
    for address in serve(app):
        with httpx.Client(base_url=address) as client:
            yield client


class Tags(HTMLParser):
    """All tags with their attributes, and the words inside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.lasttag in ("script", "style"):
            self.inline += data.strip()


def test_the_policy_allows_own_files_only(client: httpx.Client) -> None:
    policy = dict(part.split(" ", 1) for part in client.get("/").headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["frame-ancestors"] == "'none'"
    assert not any("unsafe" in sources or ":" in sources for sources in policy.values())


def test_nothing_is_inline_and_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = Tags()
    page.feed(client.get("/").text)
    assert page.inline == ""
    names = {name for _, attributes in page.tags for name in attributes}
    assert not {name for name in names if name.startswith("on") or name == "style"}
    linked = [value for _, given in page.tags for name, value in given.items() if name in ("src", "href")]
    assert sorted(linked) == ["#main", "/static/icon.svg", "/static/main.js", "/static/style.css"]


def test_no_file_names_another_server() -> None:
    for name, text in STATIC.items():
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, f"{name} names {addresses}"


@pytest.mark.parametrize(
    ("name", "kind"), [("style.css", "text/css"), ("main.js", "text/javascript"), ("icon.svg", "image/svg+xml")]
)
def test_files_are_served_as_what_they_are(client: httpx.Client, name: str, kind: str) -> None:
    answer = client.get(f"/static/{name}")
    assert answer.status_code == 200
    assert answer.text == STATIC[name]
    assert answer.headers["content-type"].split(";")[0] == kind
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_file_the_browser_has_is_not_sent_again(client: httpx.Client) -> None:
    first = client.get("/static/style.css")
    again = client.get("/static/style.css", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["cache-control"] == "no-cache"
    assert client.get("/static/style.css", headers={"If-None-Match": '"older"'}).status_code == 200


@pytest.mark.parametrize("name", ["nothing.js", "index.html", "..%2fpage.py", "%2e%2e/page.py", "..%5cpage.py", ""])
def test_other_files_are_not_there(client: httpx.Client, name: str) -> None:
    assert client.get(f"/static/{name}").status_code == 404


def test_the_page_is_no_part_of_the_api() -> None:
    app = FastAPI()
    mount(app)
    assert app.openapi()["paths"] == {}


def test_scripts_import_what_is_there() -> None:
    for name, text in SCRIPTS.items():
        for imported, source in re.findall(r'import \{([^}]*)\} from "\./([\w.]+)"', text):
            assert source in SCRIPTS, f"{name} imports from {source}"
            for each in imported.replace(" ", "").split(","):
                assert re.search(rf"export (?:const|class) {each}\b", SCRIPTS[source]), f"{source} has no {each}"


def test_scripts_never_take_text_for_markup() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|setHTML"
    )
    for name, text in SCRIPTS.items():
        assert not forbidden.search(text), name
