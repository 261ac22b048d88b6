"""Makes the data folder beside it with the first version of the schema; README.md says how to run it."""

import base64
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import urllib.request
import zlib
from contextlib import closing
from pathlib import Path

PROGRAM, FOLDER = sys.argv[1], Path(sys.argv[2])
CONFIG = FOLDER.with_suffix(".toml")
PORT = "18800"
MODEL = "scripted/echo"


def picture() -> str:
    """A PNG of one red pixel, as a data URL."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


def serve() -> subprocess.Popen[str]:
    command = [PROGRAM, "serve", "--port", PORT, "--data", str(FOLDER), "--config", str(CONFIG)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    assert any("ready" in line for line in server.stdout)
    return server


def call(path: str, body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request) as response:
        return json.loads(response.read())


def events(run: str, until: str) -> None:
    """Read the events of a run until one of them has a text."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/api/runs/{run}/events", headers={"authorization": f"Bearer {KEY}"}
    )
    with urllib.request.urlopen(request) as response:
        assert any(until in line.decode() for line in response)


def start(session: str, text: object, model: str = MODEL, **more: object) -> str:
    return call(f"/api/sessions/{session}/runs", {"input": text, "model": model, **more})["id"]


FOLDER.mkdir(mode=0o700)
CONFIG.write_text('[[providers]]\nname = "scripted"\ndialect = "scripted"\n')
KEY = subprocess.run(
    [PROGRAM, "key", "new", "ada", "--data", str(FOLDER), "--config", str(CONFIG)],
    capture_output=True,
    text=True,
    check=True,
).stdout.strip()
server = serve()
made: dict[str, str] = {"key": KEY}

made["completed"] = call("/api/sessions", {"title": "Résumé of 東京"})["id"]
for text in ("Grüße aus Köln", "And a second question"):
    events(start(made["completed"], text), "run.settled")

made["picture"] = call("/api/sessions", {"title": "A picture"})["id"]
shown = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": picture()}}]
events(start(made["picture"], shown), "run.settled")

made["stopped"] = call("/api/sessions", {"title": "Stopped"})["id"]
run = start(made["stopped"], "Tell me something", "scripted/lorem:2000:50")
events(run, "text.delta")
call(f"/api/runs/{run}/stop", {})

made["killed"] = call("/api/sessions", {"title": "Killed"})["id"]
made["killed_run"] = start(made["killed"], "Tell me more", "scripted/lorem:2000:50")
made["queued_run"] = start(made["killed"], "Then this", if_busy="queue")
events(made["killed_run"], "text.delta")
os.kill(server.pid, signal.SIGKILL)
server.wait()

with closing(sqlite3.connect(FOLDER / "holdfast.db")) as database:
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
for name in ("holdfast.db-wal", "holdfast.db.lock", "holdfast.db-shm", "holdfast.sock"):
    (FOLDER / name).unlink(missing_ok=True)
shutil.rmtree(FOLDER / "models", ignore_errors=True)
(FOLDER / "made.json").write_text(json.dumps(made, indent=2) + "\n")
