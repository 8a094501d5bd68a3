"""What an experiment must show, before anything is judged by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.errors import BadInput
from swarmlab.judges.expected import read_expected, require_mappings
from swarmlab.judges.registry import JUDGES, judge_of

NOTHING_EXPECTED = {"record_dht"}


@pytest.mark.parametrize("exp", sorted(JUDGES.keys() - NOTHING_EXPECTED))
def test_nobody_judges_by_nothing(exp):
    run: Any = SimpleNamespace()
    with pytest.raises(BadInput, match="expected"):
        judge_of(exp).measure(run, {})


def test_what_is_looked_up_by_name_is_a_mapping():
    require_mappings({"arms": {}, "cells": {"a": 1}, "other": 3}, "arms", "cells")
    with pytest.raises(BadInput) as refused:
        require_mappings({"arms": {}, "cells": [1]}, "arms", "cells")
    assert (refused.value.field, refused.value.value) == ("expected", "cells")


@pytest.mark.parametrize("text", ["- a list", "a: [", "\x00"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text):
    (tmp_path / "expected.yaml").write_text(text)
    with pytest.raises(BadInput, match="expected"):
        read_expected("failover", tmp_path / "expected.yaml")


def test_an_experiment_that_nobody_knows_is_answered_with_all_that_there_are():
    with pytest.raises(BadInput, match="exp: 'juggling' is not usable; allowed: one of appendix_e, churn, "):
        read_expected("juggling")
