"""Settings that cannot work are refused before anything starts."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from swarmlab.errors import BadInput
from swarmlab.recovery.settings import MAY_BE_ZERO, RecoverySettings


@pytest.mark.parametrize("name", [entry.name for entry in fields(RecoverySettings)])
@pytest.mark.parametrize("value", [0, -1.0, math.nan])
def test_every_number_must_be_above_zero(name, value):
    if name in MAY_BE_ZERO and value == 0:
        assert getattr(RecoverySettings(**{name: value}), name) == 0
        return
    with pytest.raises(BadInput) as caught:
        RecoverySettings(**{name: value})
    assert caught.value.field == f"recovery.{name}"


@pytest.mark.parametrize("value", ["5", None, True])
def test_what_is_no_number_is_refused_by_name(value):
    with pytest.raises(BadInput, match=r"recovery\.ban_s"):
        RecoverySettings(ban_s=value)


def test_the_defaults_fit_each_other_and_petals():
    settings = RecoverySettings()
    assert settings.replay_tokens <= 2048  # petals refuses more in one request
    assert settings.idle_s < 300  # petals' step timeout
    assert settings.lifetime_s < 1800  # petals' session timeout
    assert settings.ban_s <= settings.ban_max_s
    assert settings.view_age_s <= settings.view_max_age_s
    assert settings.hedge_s <= settings.connect_s
    assert settings.retry_s <= settings.retry_max_s
    assert settings.ban_s < settings.recovery_s  # or a peer that returns is never found within a step
