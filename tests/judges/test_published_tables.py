"""Tables of everything that is published, as wide as a terminal without a window: 80 columns."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from rich.console import Console

from swarmlab.analysis.soak_table import soak_table
from swarmlab.judges.registry import judge_of
from swarmlab.settings import ROOT

PUBLISHED = sorted(path.parent for path in (ROOT / "results" / "tables").glob("*/summary.json"))
ELLIPSIS, LINE = "\u2026", "\u2500"


def printed(table, width):
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get().replace(LINE, "")


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def table_of(folder):
    exp = json.loads((folder / "run.json").read_text(encoding="utf-8"))["exp"]
    return judge_of(exp).table(summary_of(folder))


def characters(text):
    return Counter("".join(text.split()))


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_at_80_columns_every_word_and_number_is_there_and_whole(folder):
    text = printed(table_of(folder), 80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert ELLIPSIS not in text
    assert Counter(text.split()) == Counter(printed(table_of(folder), 300).split())


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_on_a_narrow_terminal_no_character_is_lost(folder):
    text = printed(table_of(folder), 44)
    assert all(len(line) <= 44 for line in text.splitlines())
    assert characters(text) == characters(printed(table_of(folder), 300))


def test_a_soak_of_three_arms_fits_80_columns():
    arm = summary_of(ROOT / "results" / "tables" / "failover_soak_30min")["arms"]["swarmlab"]
    table = soak_table(dict.fromkeys(("petals", "issue_patch", "swarmlab"), arm))
    assert Counter(printed(table, 80).split()) == Counter(printed(table, 300).split())


def test_something_is_published():
    assert len(PUBLISHED) > 10
