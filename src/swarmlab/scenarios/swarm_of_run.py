"""From the settings of a run to its model and its swarm, for all experiments that start servers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from swarmlab.bridge.models import Checkpoint, ensure_model
from swarmlab.bridge.models.synthetic import is_synthetic
from swarmlab.bridge.petals_argv import check_server_argv
from swarmlab.health.capacity import BlockShape, weight_bytes
from swarmlab.settings import RunSettings
from swarmlab.swarm.spec import SwarmSpec


def given(settings: RunSettings) -> dict[str, Any]:
    """The fields of ``real_swarm.OnRealSwarm``.

    :raises BadInput: if the model is not usable, or for arguments that petals' server would refuse
    """
    checkpoint = checkpoint_of(settings)
    return {
        "checkpoint": checkpoint,
        "arms": settings.arms,
        "swarm": swarm_spec(settings, checkpoint),
        "client": settings.client.as_petals(),
        "recovery": asdict(settings.recovery_settings()),
        "seed": settings.seed,
    }


def checkpoint_of(settings: RunSettings) -> Checkpoint:
    """The model of a run, generated if it can be.

    :raises BadInput: if it is not there or not usable
    """
    model = settings.model
    return ensure_model(
        model.path or model.name, settings.models_dir, model.n_blocks, model.seed, name=model.name
    )


def default_store(settings: RunSettings) -> Path:
    """Where blocks are kept that are drawn and not read, unless the settings say."""
    return Path(settings.models_dir) / "block_store"


def swarm_spec(settings: RunSettings, checkpoint: Checkpoint) -> SwarmSpec:
    """The swarm of a run, without its servers yet.

    :raises BadInput: for arguments that petals' server would refuse
    """
    check_server_argv(settings.swarm.argv, "swarm.argv", here=settings.cluster.kind == "local")
    options = asdict(settings.swarm)
    argv = tuple(options.pop("argv"))
    del options["throughput_tps"]  # each server's own
    block_bytes = weight_bytes(
        BlockShape.of_config(checkpoint.config), settings.swarm.torch_dtype, settings.model.quant
    )
    store_dir = options.pop("store_dir") or (
        default_store(settings) if is_synthetic(checkpoint.config) else None
    )
    return SwarmSpec(
        checkpoint.path,
        checkpoint.dht_prefix,
        checkpoint.n_blocks,
        (),
        block_bytes=block_bytes,
        quant=settings.model.quant,
        store_dir=None if store_dir is None else str(Path(store_dir).absolute()),
        argv=argv,
        cluster=settings.cluster,
        network=settings.network,
        **options,
    )
