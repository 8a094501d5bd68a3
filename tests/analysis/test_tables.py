from __future__ import annotations

import pytest
from rich.console import Console

from swarmlab.analysis.checks import Finding, Verdict, assume
from swarmlab.analysis.failover import measure, summarise
from swarmlab.analysis.tables import comparison_table, findings_table, marked_text, texts_table, times
from tests.analysis.histories import default_run


def printed(table, width=80):
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_the_comparison_fits_a_terminal_and_needs_no_colour():
    text = printed(comparison_table(summarise(measure(default_run().evidence()))))
    lines = [line.split() for line in text.splitlines()]
    assert ["split_replacement"] in lines
    assert ["petals", "exception", "25%", "1e-05", "never", "-", "-"] in lines
    assert ["issue_patch", "wrong", "62%", "15", "never", "-", "-"] in lines
    assert ["swarmlab", "identical", "100%", "1e-05", "0.60", "0.28", "3.1"] in lines
    assert "\u2026" not in text  # nothing was cut off


def test_an_outcome_that_is_not_known_says_so():
    history = default_run()
    del history.arrays["kill_last", "swarmlab"]
    lines = printed(comparison_table(summarise(measure(history.evidence())))).splitlines()
    (line,) = (line for line in lines if "unknown" in line)
    assert "never" not in line  # nor is that known


def test_findings_show_assumptions_first_and_survive_markup_in_messages():
    findings = [
        Finding("a / b", Verdict.FAILS, "got [/red] x[0]"),
        assume("run", False, "its status is failed"),
    ]
    text = printed(findings_table(findings))
    assert "[/red] x[0]" in text
    assert text.index("UNKNOWN") < text.index("FAILS")


def test_thousands_of_floors_fit_their_column():
    assert [times(value) for value in (1143.26, 2.94, None)] == ["1143", "2.9", "-"]


@pytest.mark.parametrize(
    ("text", "reference", "shown"),
    [
        ("Paris.", "Paris.", "Paris."),
        ("Paris and", "Paris. It", "Paris >>>  and"),
        ("Par", "Paris.", "Par [ends here]"),
        ("a\nb", "a\nb", "a b"),
        ("x", None, "x"),
    ],
)
def test_a_text_is_marked_where_it_leaves_the_failure_free_one(text, reference, shown):
    assert marked_text(text, reference).plain == shown


def test_texts_stand_side_by_side_row_by_row():
    table = texts_table("kill", {"reference": ["ab", "cd"], "petals": ["ab", "xx"]})
    assert table.row_count == 4
