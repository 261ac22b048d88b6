"""The files of deploy/: by the schemas of Kubernetes, by rules of our own, and by a server with their environment.

No container runs here. What is checked is what can be read: images, networks and volumes are not.
"""

import re
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from holdfast.server.config.settings import Settings
from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.programs import NGINX
from tests.support.proxies import NGINX_AROUND, documented, replaced
from tests.support.server import ROOT, Server

DEPLOY = ROOT / "deploy"
SCRIPTED = {"name": "scripted", "dialect": "scripted"}
REST = 10.0
"""Seconds in which a server ends after the drain."""
SERVICE = {
    *("build", "cap_drop", "command", "depends_on", "environment", "healthcheck", "image", "init", "ports"),
    *("read_only", "restart", "security_opt", "stop_grace_period", "tmpfs", "volumes"),
}
"""Keys of a service that Compose knows, as far as they are used here."""


def manifests() -> dict[str, Any]:
    text = (DEPLOY / "kubernetes.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def pod() -> dict[str, Any]:
    return manifests()["Deployment"]["spec"]["template"]["spec"]


def variables() -> dict[str, Any]:
    return {each["name"]: each for each in pod()["containers"][0]["env"]}


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose-cluster.yaml").read_text())


@requirement("nodes.deploy")
@pytest.mark.parametrize("kind", manifests())
def test_the_manifest_is_valid_by_the_schemas_of_kubernetes(kind):
    """Strictly: a key that it does not know is an error, not ignored."""
    kubernetes_validate.validate(manifests()[kind], kubernetes_validate.latest_version(), strict=True)


@requirement("nodes.deploy")
def test_pods_have_no_rights_that_they_do_not_need():
    """Not root, no new privileges, nothing written but to their own folders, no token of the cluster."""
    (container,) = pod()["containers"]
    rights = container["securityContext"]

    assert pod()["securityContext"]["runAsNonRoot"]
    assert pod()["securityContext"]["runAsUser"] > 0
    assert not pod()["automountServiceAccountToken"]
    assert (False, True, ["ALL"]) == (
        rights["allowPrivilegeEscalation"],
        rights["readOnlyRootFilesystem"],
        rights["capabilities"]["drop"],
    )


@requirement("nodes.deploy")
def test_pods_are_ready_alive_and_drained_as_the_server_says():
    """A pod that is killed before its drain has ended settles nothing."""
    (container,) = pod()["containers"]
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]

    assert "/ready" == container["readinessProbe"]["httpGet"]["path"]
    assert "/health" == container["livenessProbe"]["httpGet"]["path"]
    assert pod()["terminationGracePeriodSeconds"] >= Settings().drain + pause + REST
    assert "status.podIP" == variables()["POD_IP"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert re.fullmatch(r"\$\(POD_IP\):\d+", variables()["HOLDFAST_NODE_ADDRESS"]["value"])
    names = [each["name"] for each in container["env"]]
    assert names.index("POD_IP") < names.index("HOLDFAST_NODE_ADDRESS"), "only names that come before are replaced"


@requirement("nodes.deploy", "deploy.units")
@pytest.mark.parametrize("file", ["compose.yaml", "compose-cluster.yaml", "systemd/holdfast.service"])
def test_a_server_has_time_to_drain_before_it_is_killed(file):
    """One default for all: the files set no drain of their own, and wait for longer than it."""
    text = (DEPLOY / file).read_text()
    (waits,) = re.findall(r"^\s*(?:stop_grace_period: (\d+)s|TimeoutStopSec=(\d+))\b", text, re.MULTILINE)

    assert "HOLDFAST_DRAIN" not in text
    assert float("".join(waits)) >= Settings().drain + REST


@requirement("nodes.deploy")
def test_secrets_come_from_the_secret_and_it_holds_none():
    """What is committed must be filled in; a server refuses an empty key on a public address."""
    secret = manifests()["Secret"]["stringData"]
    named = {
        name: each["valueFrom"]["secretKeyRef"]
        for name, each in variables().items()
        if "secretKeyRef" in each.get("valueFrom", {})
    }

    assert {"HOLDFAST_STORE", "HOLDFAST_CLUSTER_KEY", "HOLDFAST_API_KEY"} == named.keys()
    assert {"holdfast"} == {each["name"] for each in named.values()}
    assert secret.keys() == {each["key"] for each in named.values()}
    assert ("", "") == (secret["cluster-key"], secret["api-key"])


@requirement("nodes.deploy")
def test_only_servers_reach_the_port_for_servers():
    """It is not encrypted."""
    rules = manifests()["NetworkPolicy"]["spec"]["ingress"]
    labels = manifests()["Deployment"]["spec"]["template"]["metadata"]["labels"]
    (peers,) = [rule for rule in rules if "peers" in [port["port"] for port in rule["ports"]]]

    assert [{"podSelector": {"matchLabels": labels}}] == peers["from"]
    assert labels == manifests()["Service"]["spec"]["selector"]
    assert labels == manifests()["Deployment"]["spec"]["selector"]["matchLabels"]


@requirement("nodes.deploy")
def test_the_compose_file_has_only_known_keys_and_the_same_care():
    """Its services run as the image's user, which is not root, without rights, and with time to drain."""
    services = compose()["services"]
    server = services["holdfast"]
    settings = [f"HOLDFAST_{field.upper()}" for field in Settings.__struct_fields__]

    assert {"services", "volumes"} == compose().keys()
    assert set() == {key for service in services.values() for key in service} - SERVICE
    assert [] == [name for name in server["environment"] if name.startswith("HOLDFAST_") and name not in settings]
    assert (True, ["ALL"], ["no-new-privileges:true"]) == (
        server["read_only"],
        server["cap_drop"],
        server["security_opt"],
    )
    assert all(":?" in server["environment"][name] for name in ("HOLDFAST_CLUSTER_KEY", "HOLDFAST_API_KEY"))
    assert all(":" not in port.partition("127.0.0.1:")[0] for port in services["nginx"]["ports"])
    assert (DEPLOY / server["build"] / "Dockerfile").is_file()


@requirement("nodes.deploy")
def test_nginx_understands_its_file_and_treats_requests_as_the_guide_says(tmp_path):
    """The directives of docs/reverse-proxy.md, with the one of docs/cluster.md."""
    text = (DEPLOY / "nginx.conf").read_text()
    site = replaced(text, {"server holdfast:8787": "server 127.0.0.1:8787"})  # that name is known in the network only
    (tmp_path / "nginx.conf").write_text(NGINX_AROUND.format(folder=tmp_path, site=site))
    checked = subprocess.run(
        [NGINX.find_or_skip(), "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == checked.returncode, checked.stderr
    guide = documented("reverse-proxy.md", "nginx").replace("proxy_next_upstream off;", "proxy_next_upstream error;")
    assert directives(guide) == directives(text)


def directives(text: str) -> set[str]:
    return set(re.findall(r"^ +((?:proxy_|gzip|client_max)[^;]+;)", text, re.MULTILINE))


@requirement("nodes.deploy")
def test_pods_run_as_the_user_of_the_image():
    """So that files which the image has for its user are theirs."""
    users = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    rights = pod()["securityContext"]

    assert [(str(rights["runAsUser"]), str(rights["runAsGroup"]))] == users


@requirement("nodes.deploy")
async def test_a_server_with_the_environment_of_the_manifest_is_ready(postgres, tmp_path):
    """Every variable is one that it knows; probes that name the pod's address are answered; the volume is as shared
    as that of a pod."""
    port, peers = free_port(), free_port()
    volume = tmp_path / "data"
    volume.mkdir()
    volume.chmod(0o2777)
    key = "api-key-" + "x" * 32
    secret = {"store": postgres.url(await postgres.new_database()), "cluster-key": "k" * 32, "api-key": key}
    env = {
        name: each["value"] if "value" in each else secret.get(each["valueFrom"].get("secretKeyRef", {}).get("key"), "")
        for name, each in variables().items()
    }
    env |= {"HOLDFAST_NODE_ADDRESS": f"127.0.0.1:{peers}", "HOME": str(volume)}
    data = volume / env.pop("HOLDFAST_DATA").removeprefix("/data/")
    async with Server(tmp_path / "settings", [SCRIPTED], env=env, port=port, args=["--data", str(data)]) as server:
        async with server.client(host="10.1.2.3:8787") as client:
            answers = [(await client.get(path)).status for path in ("/health", "/ready", "/api/nodes")]
        async with server.client(authorization=f"Bearer {key}") as client:
            (node,) = (await (await client.get("/api/nodes")).json())["nodes"]
        log = server.log_text()

    assert [200, 200, 401] == answers
    assert f"127.0.0.1:{peers}" == node["address"]
    assert 0o700 == data.stat().st_mode & 0o777
    assert "is not a setting" not in log
