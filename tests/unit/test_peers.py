"""The bench's peers: how they are pinned, installed and held, without installing any of them."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench import beside, compared, installs
from bench.installs import FromNpm
from bench.instruments import Failed
from bench.peers import PEERS, Peer, started


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
def test_a_peer_is_installed_at_the_version_that_its_figures_name(peer: type[Peer]) -> None:
    """A result says a version; what is installed must be that and nothing newer."""
    packages = peer.source.packages
    pinned = dict(packages) if isinstance(peer.source, FromNpm) else dict(each.split("==") for each in packages)

    assert peer.version in pinned.values()
    assert all(version[0].isdigit() for version in pinned.values())


@dataclass(frozen=True)
class Steps:
    """A source whose steps are Python."""

    scripts: tuple[str, ...]
    packages: tuple[str, ...] = ()

    def steps(self, folder: Path) -> list[list[str]]:
        return [[sys.executable, "-c", script, str(folder)] for script in self.scripts]


WRITES = "import sys, pathlib; (pathlib.Path(sys.argv[1]) / 'there').write_text('yes')"


def test_what_cannot_be_installed_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an installation would be taken for a whole one the next time."""
    monkeypatch.setattr(installs, "PLACE", tmp_path)

    reason = installs.install("broken", Steps((WRITES, "raise SystemExit('no such package')")))

    assert reason == "no such package"
    assert not (tmp_path / "broken").exists()


def test_what_hangs_while_it_is_installed_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that does not answer must not stop a run that nobody watches."""
    monkeypatch.setattr(installs, "PLACE", tmp_path)
    monkeypatch.setattr(installs, "LONGEST", 0.2)

    reason = installs.install("hanging", Steps(("import time; time.sleep(600)",)))

    assert "timed out" in str(reason)


def test_what_is_installed_is_not_installed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless another version is wanted."""
    monkeypatch.setattr(installs, "PLACE", tmp_path)
    assert installs.install("peer", Steps((WRITES,))) is None
    (tmp_path / "peer" / "there").unlink()

    assert installs.install("peer", Steps((WRITES,))) is None
    assert not (tmp_path / "peer" / "there").exists()
    assert installs.install("peer", Steps((WRITES, WRITES))) is None
    assert (tmp_path / "peer" / "there").exists()


def test_a_peer_that_is_not_installed_says_how_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installs, "PLACE", tmp_path)

    with pytest.raises(Failed, match="make bench-peers"), started("litellm", 1):
        pass


def test_a_target_can_be_killed_and_started_again_where_it_was() -> None:
    """What the lab needs to see whether anything outlives a crash."""
    with started("stub", upstream_port=1) as target:
        port, folder, first = target.port, target.folder, target.pid
        (folder / "kept").write_text("yes")
        target.kill()
        assert not target.ready()
        target.restart()

        assert (target.port, target.folder) == (port, folder)
        assert target.pid != first
        assert target.ready()
        assert (folder / "kept").exists()
        last = target.pid
    assert not folder.exists()
    assert not Path(f"/proc/{last}").exists()


def test_a_target_stands_still_while_others_are_measured() -> None:
    """What slow servers do between two measurements, so that each has to be started once only."""
    with started("stub", upstream_port=1) as target:
        pid = target.pid
        target.pause()
        assert _state(pid) == "T"

        target.wake()
        assert target.ready()
        assert target.pid == pid
        target.pause()
    assert not Path(f"/proc/{pid}").exists()


def _state(pid: int | None) -> str:
    """Of a process that was told to stop: it does so as soon as it may."""
    while (state := Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]) != "T":
        time.sleep(0.001)
    return state


def test_ratios_are_those_to_the_best_peer() -> None:
    """JSON is held against the Rust peers alone, as promised; who failed is no peer to beat."""
    flat = {"holdfast": 400.0, "nginx": 1000.0, "sglang-router": 50.0, "portkey": 20.0}
    json = {"holdfast": 40.0, "vllm-router": 20.0, "portkey": 100.0}
    scenarios = {
        "flat": {"median": {name: {"chunks_per_second": rate} for name, rate in flat.items()}},
        "json": {"median": {name: {"requests_per_second": rate} for name, rate in json.items()}},
    }

    assert beside.ratios(scenarios) == {
        "flat": {"best": "sglang-router", "of_best_peer": 8.0, "promised": 4.0},
        "json": {"best": "vllm-router", "of_best_peer": 2.0, "promised": 1.0},
    }
    assert beside.ratios({}) == {}


def test_the_table_has_figures_failures_and_who_is_missing() -> None:
    """A peer without a figure is never just left out."""
    closes = {"close_p50_ms": 2.0, "close_p99_ms": 123.4, "closed": 30.0, "never_closed": 10.0}
    results = {
        "peers": {"litellm": {"version": "1.2"}, "portkey": {"version": "3.4"}, "nanobot": {"version": "5.6"}},
        "missing": {"nanobot": "could not be installed: no such package\nmuch more"},
        "ratios": {"flat": {"best": "litellm", "of_best_peer": 4.5, "promised": 4.0}},
        "scenarios": {
            "flat": {
                "median": {"holdfast": {"chunks_per_second": 300000.0}, "litellm": {"chunks_per_second": 800.0}},
                "failures": {"portkey": "too slow"},
            },
            "leave": {"median": {"litellm": closes, "portkey": closes | {"closed": 0.0}}, "failures": {}},
        },
    }

    text = compared.table(results)

    assert "|  | holdfast | litellm 1.2 | portkey 3.4 |\n" in text
    assert "| 16 streams flat out: chunks/s | 300,000 | 800 | fails |\n" in text
    assert "upstream closed after p50 / p99, ms | - | 2.00 / 123, 10 never | never |\n" in text
    assert "flat: Holdfast is 4.50 times the best peer, litellm (promised: 4).\n" in text
    assert "nanobot is not in the table: could not be installed: no such package\n" in text
    assert "portkey fails in flat: too slow\n" in text
