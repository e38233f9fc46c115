"""The settings of a training with each optimizer, by its name, so that a new one is tested like the others."""

from typing import Any, get_args

from gptcli.config import OptimConfig

EACH_OPTIMIZER: dict[str, dict[str, Any]] = {
    name: {"optim.optimizer": name} for name in get_args(OptimConfig.model_fields["optimizer"].annotation)
}
