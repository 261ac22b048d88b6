"""What the repository has to put around Holdfast: image, compose file, units. As far as it goes without an engine."""

import asyncio
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.server import ROOT, Server

SYSTEMD_ANALYZE = shutil.which("systemd-analyze")
UNITS = ROOT / "deploy" / "systemd"
COMMAND = "/opt/holdfast/.venv/bin/holdfast"
SCRIPTED = {"name": "scripted", "dialect": "scripted"}
SECRET = re.compile(r"(key|token|secret|password)\s*[=:]\s*['\"]?[\w-]{8,}|sk-\w{8,}", re.IGNORECASE)
systemd = pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="systemd-analyze is not installed")


class Step(NamedTuple):
    """An instruction of the Dockerfile."""

    word: str
    rest: str
    stage: int


def steps() -> list[Step]:
    """Return the instructions, each on one line, with the number of its stage; 0 is before the first."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE))
    stage, found = 0, []
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        stage += word == "FROM"
        found.append(Step(word, rest.strip(), stage))
    return found


def last(word: str) -> str:
    """Return the last instruction of that kind in the final stage."""
    final = steps()[-1].stage
    return [step.rest for step in steps() if (step.word, step.stage) == (word, final)][-1]


# the image


@requirement("deploy.image")
def test_hadolint_has_nothing_to_say_about_the_dockerfile():
    """No rule is switched off, neither here nor in the file."""
    command = [Path(sys.executable).with_name("hadolint"), "--no-color", "--disable-ignore-pragma", "Dockerfile"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (0, "") == (ended.returncode, ended.stdout + ended.stderr)


@requirement("deploy.image")
def test_the_image_runs_as_a_user_without_rights_and_installs_by_hash():
    """A server that is taken over must not be root, and no package gets in that no lock names."""
    installs = [step.rest for step in steps() if "pip" in step.rest and " install " in step.rest]

    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", last("USER"))
    assert "/data" in last("VOLUME")
    assert "SIGTERM" == last("STOPSIGNAL")
    assert ["holdfast", "serve"] == json.loads(last("CMD"))
    assert len(installs) >= 3
    assert [] == [step for step in installs if "--require-hashes" not in step and "--no-index" not in step]
    assert not SECRET.search((ROOT / "Dockerfile").read_text())
    assert "local" not in " ".join(installs), "the built-in model would double the size of the image"


@requirement("deploy.image")
def test_every_copied_file_exists_and_nothing_else_is_sent_to_the_engine():
    """What .dockerignore lets through is what the Dockerfile copies. A forgotten .env cannot get into a layer."""
    copied = {
        source.rstrip("/")
        for step in steps()
        if step.word == "COPY" and "--from" not in step.rest
        for source in shlex.split(step.rest)[:-1]
    }
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    let_through = [rule[1:] for rule in rules if rule.startswith("!")]

    assert "*" == rules[0]
    assert [] == sorted(source for source in copied if not (ROOT / source).exists())
    assert [] == sorted(each for each in copied if not any(fnmatch.fnmatch(each, rule) for rule in let_through))
    assert [] == sorted(rule for rule in let_through if not fnmatch.filter(copied, rule))


@requirement("deploy.image")
async def test_the_health_check_of_the_image_tells_a_ready_server_from_none(tmp_path):
    """It is run as the engine runs it, with the port in the environment."""
    program, *arguments = json.loads(last("HEALTHCHECK").partition("CMD ")[2])

    async def health(port: int) -> int:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *arguments), env={"HOLDFAST_PORT": str(port)}, stderr=asyncio.subprocess.DEVNULL
        )
        return await process.wait()

    async with Server(tmp_path, [SCRIPTED]) as server:
        with_server = await health(server.port)

    assert "python" == program
    assert 0 == with_server
    assert 0 != await health(free_port())


@pytest.mark.long("it installs every package of the image")
@requirement("deploy.image")
async def test_the_steps_of_the_image_give_a_server_with_metrics_and_traces_that_is_healthy(tmp_path):
    """As far as it goes without an engine: the same commands, in folders of this test instead of those of an image."""
    built = await asyncio.to_thread(build_image, tmp_path)
    config = "metrics = true\ntraces = true\n"
    program = [str(built / "opt/holdfast/bin/holdfast")]
    async with Server(tmp_path / "data", [SCRIPTED], config=config, program=program) as server:
        async with server.client() as client:
            shown = await (await client.get("/metrics")).text()
        python, *arguments = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
        health = await asyncio.create_subprocess_exec(
            *(built / "opt/holdfast/bin" / python, *arguments), env={"HOLDFAST_PORT": str(server.port)}
        )
        code = await health.wait()

    assert 0 == code
    assert "holdfast_build_info" in shown


def build_image(folder: Path) -> Path:
    """Do the steps of the first stage below a folder, with the Python of this test."""
    (folder / "build").mkdir()
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys._base_executable)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    for step in steps():
        if (step.word, step.stage) == ("COPY", 1):
            *sources, target = shlex.split(step.rest)
            for source in sources:
                copy_to(ROOT / source, folder / "build" / target)
        if (step.word, step.stage) == ("RUN", 1):
            here = re.sub(r"(?<![\w.])/(tools|opt|wheel)\b", rf"{folder}/\1", step.rest)
            subprocess.run(["sh", "-ec", here], cwd=folder / "build", env=environment, check=True)
    return folder


def copy_to(source: Path, target: Path) -> None:
    """Copy as COPY does: a file into a folder, and the contents of a folder."""
    target.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


@requirement("deploy.image")
def test_the_compose_file_takes_every_right_away_and_names_no_secret():
    """One node: its root is read-only, it has no capability, and it is reached from this machine only."""
    text = (ROOT / "deploy" / "compose.yaml").read_text()
    service = yaml.safe_load(text)["services"]["holdfast"]

    assert (ROOT / "deploy" / service["build"] / "Dockerfile").resolve() == ROOT / "Dockerfile"
    assert (True, ["ALL"]) == (service["read_only"], service["cap_drop"])
    assert ["no-new-privileges:true"] == service["security_opt"]
    assert ["127.0.0.1:8787:8787"] == service["ports"]
    assert ["data:/data"] == service["volumes"]
    assert re.fullmatch(r"\$\{HOLDFAST_API_KEY:\?.+\}", service["environment"]["HOLDFAST_API_KEY"])
    assert not SECRET.search(text)


# systemd


@systemd
@requirement("deploy.units")
def test_systemd_understands_every_line_of_the_units(tmp_path):
    """A key that it does not know it ignores, with a line in a log that no one reads."""
    assert SYSTEMD_ANALYZE is not None
    for unit in UNITS.iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace(COMMAND, f"{sys.executable} -m holdfast"))
    units = sorted(map(str, tmp_path.iterdir()))
    command = [SYSTEMD_ANALYZE, "verify", "--man=no", *units]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert {"holdfast.service", "holdfast-backup.service", "holdfast-backup.timer"} == {Path(u).name for u in units}
    assert [] == [line for line in (ended.stdout + ended.stderr).splitlines() if "holdfast" in line]
    assert 0 == ended.returncode


@requirement("deploy.units")
@pytest.mark.parametrize("unit", ["holdfast.service", "holdfast-backup.service"])
def test_both_services_run_as_one_user_with_few_rights(unit):
    """The backup reads the folder of the server, whose user systemd makes up."""
    lines = (UNITS / unit).read_text().splitlines()
    wanted = {"DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "UMask=0077"}

    assert wanted <= set(lines)
    assert unit == "holdfast.service" or "User=holdfast" in lines
    assert any(line.startswith("StateDirectory=holdfast") for line in lines)


@requirement("deploy.units", "store.backup")
async def test_the_backup_unit_writes_a_backup_of_the_running_server(tmp_path):
    """Its command line is run as systemd runs it, with other folders."""
    backups = tmp_path / "backups"
    backups.mkdir()
    (line,) = re.findall(r"^ExecStart=(.*)$", (UNITS / "holdfast-backup.service").read_text(), re.MULTILINE)
    async with Server(tmp_path / "data", [SCRIPTED]) as server:
        changes = {
            COMMAND: f"{sys.executable} -m holdfast",
            "/etc/holdfast/holdfast.toml": str(server.config),
            "/var/lib/holdfast-backups": str(backups),
            "%%": "%",
        }
        for written, here in changes.items():
            assert written in line
            line = line.replace(written, here)
        process = await asyncio.create_subprocess_exec(
            *shlex.split(line), env=server.environment | {"HOLDFAST_DATA": str(server.data)}
        )
        code = await process.wait()

    assert 0 == code
    assert 1 == len([*backups.glob("holdfast-????-??-??T??????.tar.gz")])
