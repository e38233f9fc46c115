"""Short samples during training, to watch the model learn."""

from __future__ import annotations

from gptcli.config import SamplingConfig
from gptcli.dataset.folder import Dataset
from gptcli.generation.stream import Piece, stream_samples
from gptcli.model.gpt import GPT

SAMPLE_TOKENS = 120


def draw_sample(model: GPT, dataset: Dataset, *, seed: int) -> str:
    """A text from an empty prompt. Leaves the random state of training and the model's mode as they are."""
    config = SamplingConfig(max_new_tokens=SAMPLE_TOKENS, seed=seed)
    was_training = model.training
    model.eval()
    try:
        pieces = stream_samples(model, dataset.tokenizer, [dataset.start_id], config, end_id=dataset.end_id)
        return "".join(piece.text for piece in pieces if isinstance(piece, Piece))
    finally:
        model.train(was_training)
