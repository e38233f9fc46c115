"""Norms of activations and gradients by layer during training, to see gradients vanish or explode."""

from __future__ import annotations

import numpy as np

from gptcli.dataset.folder import Dataset
from gptcli.generation.norms import LayerNorms, layer_norms
from gptcli.generation.residual import token_limit
from gptcli.model.gpt import GPT


def measure_layers(model: GPT, dataset: Dataset) -> LayerNorms | None:
    """The norms for the first tokens of the validation split, always the same ones; None where it has less than two.

    The passes are apart from training: without dropout, in the dtype of the weights, not compiled, and without the
    gradients of the weights. Leaves the random state of training and the model's mode as they are.
    """
    count = min(token_limit(model), dataset.val.tokens)
    if count < 2:
        return None
    was_training = model.training
    model.eval()
    try:
        return layer_norms(model, dataset.val.stream.windows(np.array([0]), count)[0].tolist())
    finally:
        model.train(was_training)
