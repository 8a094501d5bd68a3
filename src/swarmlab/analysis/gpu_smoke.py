"""The result of experiments/gpu_smoke for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN = {
    "read_s", "quantize_s", "to_device_s", "bytes_read", "device_bytes", "inference_tps", "forward_tps", "run",
    "verdict", "outcome", "steps_per_s", "recovery_s_median", "moves", "noop_reloads", "redundant_loads",
    "blocks_loaded", "out_of_service_s",
}  # fmt: skip


def table(result: Mapping[str, Any]) -> str:
    """The result for people, in Markdown."""
    lines = [
        f"# gpu_smoke on {result['device']}",
        "",
        f"{result['at_utc']}, commit {result['git']['commit']}.",
        "",
    ]
    lines += ["| step | outcome | s | peak memory on the device, GiB | numbers |", "|---|---|---|---|---|"]
    for step in result["steps"]:
        peak = step["peak_device_bytes"]
        memory = "-" if peak is None else f"{peak / 2**30:.1f}"
        numbers = "; ".join(_flat(step["numbers"]))
        lines.append(f"| {step['name']} | {step['outcome']} | {step['seconds']:g} | {memory} | {numbers} |")
    return "\n".join(lines) + "\n"


def _flat(numbers: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name} " if name != "arms" else above)
        elif name in SHOWN and value is not None:
            shown = f"{value:.4g}" if isinstance(value, float) else value
            yield f"{above}{name} {shown}"
