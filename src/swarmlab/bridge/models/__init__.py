"""Model checkpoints: the generated tiny Llama, the converted SmolLM2, or any Hugging Face Llama folder."""

from swarmlab.bridge.models.checkpoint import Checkpoint, open_checkpoint
from swarmlab.bridge.models.ensure import ensure_model
from swarmlab.bridge.models.plain import load_plain, plain_run
from swarmlab.bridge.models.plain_follow import plain_follow
from swarmlab.bridge.models.text import decode, prompts

__all__ = [
    "Checkpoint",
    "decode",
    "ensure_model",
    "load_plain",
    "open_checkpoint",
    "plain_follow",
    "plain_run",
    "prompts",
]
