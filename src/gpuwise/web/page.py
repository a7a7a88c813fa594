"""Serves the page from the files of this package alone."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from fastapi import FastAPI, HTTPException, Request, Response

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "form-action 'none'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
))  # fmt: skip
"""The browser runs only the page's own scripts, connects only to this server, and renders no text as markup."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page, read once."""

    body: bytes
    media_type: str
    etag: str

    def answer(self, request: Request) -> Response:
        """The file, or 304 if the browser has it already."""
        headers = {**HEADERS, "ETag": self.etag}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.body, media_type=self.media_type, headers=headers)


def mount(app: FastAPI) -> None:
    """Adds the page at ``/`` and its files under ``/static``; they contain no data, so they need no token."""
    assets = _assets()
    index = assets.pop("index.html")

    def page(request: Request) -> Response:
        return index.answer(request)

    def static(name: str, request: Request) -> Response:
        if name not in assets:
            raise HTTPException(404, f"the page has no file {name!r}")
        return assets[name].answer(request)

    app.add_api_route("/", page, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/static/{name}", static, methods=["GET", "HEAD"], include_in_schema=False)


def _assets() -> dict[str, Asset]:
    bodies = {entry.name: entry.read_bytes() for entry in (files(__package__) / "static").iterdir()}
    return {
        name: Asset(body, MEDIA_TYPES[name.rpartition(".")[2]], f'"{sha256(body).hexdigest()[:32]}"')
        for name, body in bodies.items()
    }
