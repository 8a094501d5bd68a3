"""+exp=record_dht: writes down what the DHT of a running swarm shows, look by look, for simulations to start from."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from swarmlab.analysis.announced import check_peers, model_meant
from swarmlab.errors import BadInput
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios.experiment import Progress
from swarmlab.settings import RunSettings
from swarmlab.types import ServerRecord, SwarmView

ARM = "swarm"
HASH_DIGITS = 16


def build_record_dht(settings: RunSettings) -> RecordDht:
    """The recording that the settings describe.

    :raises BadInput: if they name no swarm
    """
    what = settings.recorder
    check_peers(settings.initial_peers, "initial_peers")
    if not settings.initial_peers:
        allowed = "addresses of peers, as in 'initial_peers=[/ip4/127.0.0.1/tcp/31337/p2p/Qm...]'"
        raise BadInput("initial_peers", settings.initial_peers, allowed)
    if what.every_s <= 0:
        raise BadInput("recorder.every_s", what.every_s, "seconds, above 0")
    return RecordDht(
        tuple(settings.initial_peers), settings.dht_prefix, what.n_blocks, settings.minutes * 60, what.every_s,
        hash_peers=what.hash_peers,
    )  # fmt: skip


@dataclass(frozen=True)
class RecordDht:
    """One recording.

    :param prefix: of the model's keys; None means the only model that its servers announce
    :param n_blocks: None means as announced
    :param hash_peers: write names that cannot be traced back: they are the same within this run only
    """

    initial_peers: Sequence[str]
    prefix: str | None
    n_blocks: int | None
    duration_s: float
    every_s: float
    hash_peers: bool

    world: Literal["real"] = "real"

    @property
    def model(self) -> dict[str, Any]:
        return {"id": self.prefix or "the one that is announced", "hash": None}

    @property
    def parts(self) -> list[str]:
        return ["recording"]

    @property
    def n_units(self) -> int:
        return 1

    def describe(self) -> str:
        names = ", their names hashed" if self.hash_peers else ""
        return (
            f"records what servers announce, every {self.every_s:g} s for {self.duration_s / 60:g} min{names}"
        )

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """Look, write, wait until the next look is due.

        :raises SwarmFailed: if nobody can be reached
        :raises BadInput: if it is not clear which model is meant
        """
        from swarmlab.bridge import compat  # noqa: PLC0415  seconds, for those who need it

        compat.apply()
        from swarmlab.bridge.dht_reader import reading  # noqa: PLC0415
        from swarmlab.bridge.snapshot import view_to_json  # noqa: PLC0415

        hide = Pseudonyms() if self.hash_peers else None
        progress.begin("recording", ARM)
        with reading(self.initial_peers) as reader:
            prefix, n_blocks = model_meant(
                reader.models, self.prefix, self.n_blocks, field="dht_prefix", blocks="a number of blocks"
            )
            run_dir.update(model={"id": prefix, "n_blocks": n_blocks, "hash": None})
            start_s, looks = time.monotonic(), 0
            while True:
                view, problems = reader.view(prefix, n_blocks)
                written = view_to_json(view if hide is None else hide.view(view))
                # what is wrong with a record names its peer
                run_dir.history.write("views", ARM, scenario="recording", problems=len(problems), **written)
                looks += 1
                wait_s = start_s + looks * self.every_s - time.monotonic()
                if looks * self.every_s >= self.duration_s:
                    break
                time.sleep(max(0.0, wait_s))
        progress.end("recording", ARM, "done", f"{looks} looks, {len(view.servers)} servers in the last one")


class Pseudonyms:
    """Other names for peers, from a key that is thrown away with this object: nobody can try known names."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def name(self, peer_id: str) -> str:
        return hashlib.blake2s(peer_id.encode(), key=self._key).hexdigest()[:HASH_DIGITS]

    def view(self, view: SwarmView) -> SwarmView:
        return replace(view, servers=tuple(self._record(record) for record in view.servers))

    def _record(self, record: ServerRecord) -> ServerRecord:
        pings: Mapping[str, float] = {self.name(peer): s for peer, s in record.next_pings_s.items()}
        return replace(record, peer_id=self.name(record.peer_id), next_pings_s=pings)
