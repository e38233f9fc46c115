"""The configuration of a run: a frozen tree of sections, presets, and the rule of precedence. Imports no torch."""

from gptcli.config.build import (
    build_config,
    differences,
    load_config_file,
    nearest_preset,
    parse_config_file,
    parse_section,
    to_toml,
    with_train,
)
from gptcli.config.model import ModelConfig
from gptcli.config.problems import config_error, field_names
from gptcli.config.schema import (
    CHANGEABLE_ON_RESUME,
    DataConfig,
    OptimConfig,
    RunConfig,
    SamplingConfig,
    TokenizerConfig,
    TrainConfig,
)
from gptcli.config.types import DEFAULT_SEED, MAX_COUNT, Compile, DtypeName, Quantization, ResumeMode

__all__ = [
    "CHANGEABLE_ON_RESUME",
    "DEFAULT_SEED",
    "MAX_COUNT",
    "Compile",
    "DataConfig",
    "DtypeName",
    "ModelConfig",
    "OptimConfig",
    "Quantization",
    "ResumeMode",
    "RunConfig",
    "SamplingConfig",
    "TokenizerConfig",
    "TrainConfig",
    "build_config",
    "config_error",
    "differences",
    "field_names",
    "load_config_file",
    "nearest_preset",
    "parse_config_file",
    "parse_section",
    "to_toml",
    "with_train",
]
