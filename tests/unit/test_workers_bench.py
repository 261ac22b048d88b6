"""One process beside two: how their figures are put together and shown."""

from bench import commits, workers


def client(rate: float, p50: float, p99: float, errors: int = 0) -> dict[str, object]:
    """What one of two load clients reports."""
    times = {"p50": p50, "p99": p99, "max": p99 * 2}
    counts = dict.fromkeys(("chunks", "chunks_all", "requests"), 10)
    rates = dict.fromkeys(("chunks_per_second", "requests_per_second"), rate)
    said = {"error_kinds": {"cut": errors}, "errors": errors, "cpu_seconds": 0.5}
    return counts | rates | said | {"latency_us": times, "ttft_us": times}


def test_two_clients_are_one_load() -> None:
    """Rates add up; no latency looks better than what the worse client has seen at its end."""
    seen = workers.together([client(100, 10, 50), client(300, 30, 40, errors=1)])

    assert (seen["chunks_per_second"], seen["chunks"], seen["errors"]) == (400, 20, 1)
    assert seen["latency_us"] == {"p50": 20, "p99": 50, "max": 100}


def test_the_table_says_what_the_second_process_changes_and_what_was_wrong() -> None:
    """A failure, an error and a doubt stand below it."""
    calm = {"errors": 0, "left_open": 0, "stolen": 0.0}
    scenarios = {
        "flat": {
            "median": {
                "one process": {"chunks_per_second": 1000.0, **calm},
                "two processes": {"chunks_per_second": 1500.0, **calm, "errors": 3, "stolen": 0.4},
            },
            "failures": {},
        },
        "json": {"median": {}, "failures": {"one process": "too slow\nmore", "two processes": "no answer"}},
    }

    text = workers.table({"scenarios": scenarios})

    assert "| 16 streams flat out: chunks/s | 1,000 | 1,500 | 1.50x |\n" in text
    assert "two processes, flat: 3 errors.\n" in text
    assert "two processes, flat: disturbed, the host took 40% of a core away.\n" in text
    assert "one process, json: failed, too slow.\n" in text
    assert "| ... CPU µs for each | - | - | - |\n" in text


def test_workers_on_one_folder_stand_beside_both() -> None:
    """What was measured before there were any has no column for them."""
    calm = {"errors": 0, "left_open": 0, "stolen": 0.0}
    rates = {"one process": 1000.0, "two workers": 1800.0, "two processes": 2000.0}
    median = {name: {"chunks_per_second": rate, **calm} for name, rate in rates.items()}

    text = workers.table({"scenarios": {"flat": {"median": median, "failures": {}}}})

    assert "|  | one process | two workers | two processes | workers to one | two to one |\n" in text
    assert "| 16 streams flat out: chunks/s | 1,000 | 1,800 | 2,000 | 1.80x | 2.00x |\n" in text


def test_writers_are_measured_in_every_layout() -> None:
    """Every row that is counted was committed, by processes of their own."""
    found = commits.measure(0.3)

    assert found.keys() == commits.LAYOUTS.keys()
    assert all(figures["rows_per_second"] > 0 for figures in found.values())
    assert "| rows/s |" in workers.commit_table(found)
