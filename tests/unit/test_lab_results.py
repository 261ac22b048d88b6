"""The table in docs/lab.md is what the committed results say."""

from bench import lab
from holdfast_lab import CHECKS, SERVERS, WIRES


def test_the_table_of_the_lab_is_the_one_that_the_results_give():
    """Written by `python -m bench.lab --draw`: run it after a change of either."""
    page = lab.PAGE.read_text(encoding="utf-8")

    assert lab.with_table(page, lab.read(lab.newest())) == page


def test_the_results_are_of_servers_checks_and_wires_that_there_are():
    """A check that was renamed would leave its old name in a table that nobody can repeat."""
    results = lab.read(lab.newest())
    findings = [finding for report in results.reports.values() for finding in report.findings]

    assert set(lab.NAMES) == results.reports.keys() | results.missing.keys()
    assert set(lab.NAMES) <= SERVERS.keys()
    assert {check.id for check in CHECKS} == {finding.id for finding in findings}
    assert {finding.wire for finding in findings} <= WIRES.keys()


def test_what_is_not_promised_is_not_counted():
    """Fairness is a rule of the table, too."""
    results = lab.read(lab.newest())

    for report in results.reports.values():
        for finding in report.findings:
            assert (finding.verdict == "not promised") is bool(finding.why)
