"""The rhythm of a training: how often it is evaluated and saved, and on how much text it is evaluated."""

from __future__ import annotations

from gptcli.config import RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.training.evaluation import scored_tokens
from gptcli.training.mixed_batches import training_batches

EVALUATIONS = 20
"""Evaluations of a training, unless their interval is stated: enough to find its best point, however long it is."""
EVALUATION_SHARE = 0.1
"""Largest share of the updates' time that these evaluations take."""
FEWEST_TOKENS, MOST_TOKENS = 1 << 13, 1 << 20
"""Limits of the validation tokens per evaluation, unless their number is stated."""
SECONDS_BETWEEN_SAVES = 600.0
FORWARD_SHARE = 1 / 3
"""A forward pass is about a third of an update's work."""


def with_rhythm(config: RunConfig, seconds_per_step: float | None = None) -> RunConfig:
    """The config with its intervals and the size of its evaluations, where they are open.

    Its number of steps must be known. With the time of a step, a checkpoint is saved every ten minutes at least.
    """
    train = config.train
    assert train.max_steps, "the number of steps comes first"
    eval_every = train.eval_every or -(-train.max_steps // EVALUATIONS)
    per_pause = max(1, int(SECONDS_BETWEEN_SAVES / seconds_per_step)) if seconds_per_step else eval_every
    eval_tokens = train.eval_tokens or _affordable_tokens(config)
    values = {
        "eval_every": eval_every,
        "save_every": train.save_every or min(eval_every, per_pause),
        "eval_tokens": eval_tokens,
    }
    return config.model_copy(update={"train": train.model_copy(update=values)})


def _affordable_tokens(config: RunConfig) -> int:
    """Validation tokens per evaluation, so that `EVALUATIONS` take `EVALUATION_SHARE` of the updates' time."""
    trained = (config.train.max_steps or 0) * tokens_per_step(config)
    affordable = int(EVALUATION_SHARE / FORWARD_SHARE / EVALUATIONS * trained)
    return min(MOST_TOKENS, max(FEWEST_TOKENS, affordable))


def evaluation_cost(config: RunConfig, dataset: Dataset) -> float:
    """The estimated time of an evaluation in updates."""
    assert config.train.eval_tokens, "the config is not complete"
    scored = scored_tokens(dataset, config.train.eval_tokens)
    return FORWARD_SHARE * scored / tokens_per_step(config)


def tokens_per_step(config: RunConfig) -> int:
    """Tokens of an update."""
    return config.train.batch_size * config.model.block_size


def epoch_steps(config: RunConfig, dataset: Dataset) -> float:
    """Updates in one pass over the training split."""
    return training_batches(config, dataset).windows_per_epoch / config.train.batch_size
