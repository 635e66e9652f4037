"""A Hugging Face Hub of one's own, on this machine: enough of it to push a model and to take it back."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import disable_progress_bars

TOKEN = "hf_token_of_the_test"
COMMIT = "c" * 40


class FakeHub(ThreadingHTTPServer):
    """Repositories by name, each a dictionary of files."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


@contextmanager
def as_the_hub(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[FakeHub]:
    """One that huggingface_hub takes for the real one, with a token and a cache of its own."""
    with fake_hub() as hub:
        template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        names = {"ENDPOINT": hub.address, "HUGGINGFACE_CO_URL_TEMPLATE": template}
        names |= {"HF_HUB_CACHE": str(cache), "HF_TOKEN_PATH": str(cache / "no_token")}
        for name, value in names.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        disable_progress_bars()
        yield hub


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def answer(self, status: int, body: Any, **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401, {"error": "Invalid username or password."})
        if self.path == "/api/repos/create":
            asked = json.loads(content)
            name = "/".join(filter(None, [asked.get("organization"), asked["name"]]))
            self.server.repos.setdefault(name, {})
            self.server.private[name] = asked.get("private") or asked.get("visibility") == "private"  # by its version
            return self.answer(200, {"url": f"{self.server.address}/{name}"})
        repo = "/".join(self.path.split("/")[3:5])
        if "/preupload/" in self.path:
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(content)["files"]
            ]
            return self.answer(200, {"files": files})
        if "/commit/" in self.path:
            for line in map(json.loads, content.splitlines()):
                if line["key"] == "file":
                    self.server.repos[repo][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return self.answer(200, {"commitUrl": f"{self.server.address}/{repo}/commit/{COMMIT}", "commitOid": COMMIT})
        return self.answer(200, {})

    def do_GET(self) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        repo = "/".join(parts[2:4] if api else parts[:2])
        if repo not in self.server.repos:
            return self.answer(401, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        files = self.server.repos[repo]
        if api and "tree" in parts:
            tree = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in files.items()
            ]
            return self.answer(200, tree)
        if api:
            return self.answer(200, {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]})
        content = files[parts[-1]]
        return self.answer(200, content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=COMMIT)

    do_HEAD = do_GET
