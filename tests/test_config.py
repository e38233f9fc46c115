"""The config tree, its layers, its files, and its errors."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from gptcli.config import (
    CHANGEABLE_ON_RESUME,
    ModelConfig,
    OptimConfig,
    RunConfig,
    SamplingConfig,
    build_config,
    differences,
    field_names,
    load_config_file,
    nearest_preset,
    parse_section,
    to_toml,
)
from gptcli.config.presets import PRESETS, fine_tuning, preset
from gptcli.config.problems import problems
from gptcli.config.types import parse_duration
from gptcli.config.values import flatten, merge, nest, parse_setting
from gptcli.errors import ConfigError


def config(*layers: dict[str, Any], name: str = "nano") -> RunConfig:
    return build_config(name, *(nest(layer) for layer in layers), vocab_size=65)


def problem(layer: dict[str, Any], name: str = "nano") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config(layer, name=name)
    assert caught.value.exit_code == 2
    return caught.value


def test_precedence() -> None:
    """Defaults < preset < file < flags."""
    assert config().train.log_every == 10, "a default"
    assert config().optim.lr == PRESETS["nano"]["optim"]["lr"]
    assert config().train.batch_size == 8
    file = {"optim.lr": 0.5, "train.log_every": 3, "train.seed": 5}
    assert config(file).optim.lr == 0.5
    both = config(file, {"optim.lr": 0.25})
    assert (both.optim.lr, both.train.log_every, both.train.seed) == (0.25, 3, 5)
    assert both.model == config().model


def test_the_config_is_frozen() -> None:
    with pytest.raises(ValidationError):
        config().train.seed = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", PRESETS)
def test_toml_round_trip(tmp_path: Path, name: str) -> None:
    made = config(
        {"data.include": ["*.py", 'a"b'], "optim.lr": 1e-7, "train.max_time": "90m", "train.seed": 2**63 - 1}, name=name
    )
    (tmp_path / "gptcli.toml").write_text(to_toml(made), encoding="utf-8")
    again = load_config_file(tmp_path / "gptcli.toml")
    assert build_config(again["preset"], again, vocab_size=65) == made


def test_derived_widths_are_numbers_and_files_store_only_what_was_set(tmp_path: Path) -> None:
    """A width that follows from others stays open in files, one that was set is stored even where it is the same."""
    derived, stated = config(), config({"model.head_dim": 16, "model.mlp_width": 128})
    for made in (derived, stated):
        assert (made.model.n_kv_head, made.model.head_dim, made.model.mlp_width) == (3, 16, 128)
        (tmp_path / "gptcli.toml").write_text(to_toml(made), encoding="utf-8")
        again = load_config_file(tmp_path / "gptcli.toml")
        assert to_toml(parse_section(RunConfig, again)) == to_toml(made)
    stored = [tomllib.loads(to_toml(made))["model"] for made in (derived, stated)]
    assert stored[1] == stored[0] | {"head_dim": 16, "mlp_width": 128}
    opened = ModelConfig.model_validate(derived.model.model_dump())
    assert opened.model_dump() == derived.model.model_dump()
    assert (opened.model_dump()["head_dim"], opened.model_dump()["mlp_width"]) == (None, None)
    assert stated.model.model_copy(update={"block_size": 9}).model_dump()["head_dim"] == 16


@pytest.mark.parametrize("key", ["model.n_head", "model.n_embd", "model.mlp"])
def test_a_width_that_cannot_be_derived_is_no_problem_of_its_own(key: str) -> None:
    """Only the value that is wrong is named."""
    assert problem({key: "x"}).message.count("must be") == 1


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("optim.lr", 0, "must be a number above 0"),
        ("optim.lr", -1e-3, "must be a number above 0"),
        ("optim.lr", float("nan"), "finite"),
        ("optim.lr", float("inf"), "finite"),
        ("optim.lr", "fast", "'fast': it must be a number above 0"),
        ("optim.beta2", 1.0, "must be a number of at least 0 and below 1"),
        ("optim.grad_clip", float("nan"), "finite"),
        ("optim.schedule", "cosin", "must be cosine, linear, wsd or constant"),
        ("model.dropout", 1.0, "below 1"),
        ("model.dropout", -0.1, "at least 0"),
        ("model.dropout", float("nan"), "finite"),
        ("model.n_layer", 0, "must be a whole number from 1 to 512"),
        ("model.n_layer", 100_000, "must be a whole number from 1 to 512"),
        ("model.n_layer", "four", "must be a whole number from 1 to 512"),
        ("model.n_embd", 50, "`model.n_embd` (50) must be a multiple of `model.n_head` (3)"),
        ("model.block_size", 2.5, "whole number"),
        ("train.batch_size", 0, "from 1 to 1,048,576"),
        ("train.max_steps", 0, "from 1 to 1,000,000,000"),
        ("train.max_steps", True, "True: it must be a whole number from 1 to 1,000,000,000"),
        ("train.max_steps", 10**12, "from 1 to 1,000,000,000"),
        ("train.max_steps", 10**4000, "a huge number: it must be"),
        ("train.deterministic", 1, "must be true or false"),
        ("optim.lr", True, "must be a number above 0"),
        ("data.include", "*.py", "must be a list of texts"),
        ("data.include", ["*.py", 5], "5: it must be text"),
        ("train.init_sha256", "abc", "'abc': it must be text that matches ^[0-9a-f]{64}$"),
        ("tokenizer.kind", 5, "must be text"),
        ("train.max_time", True, "above 0"),
        ("train.max_time", "1000000d", "at most 315,360,000"),
        ("train.epochs", 0, "above 0"),
        ("train.max_time", "5 weeks", "must be a time such as 90s, 30m, 1.5h or 2d"),
        ("train.max_time", "-5m", "above 0"),
        ("train.max_time", "nan", "finite"),
        ("train.seed", -1, "from 0 to 9,223,372,036,854,775,807"),
        ("train.keep_checkpoints", 1, "at least 2"),
        ("train.dtype", "float8", "must be auto, float32, bfloat16 or float16"),
        ("train.micro_batch_size", "many", "must be auto or a whole number from 1 to 1,000,000,000"),
        ("train.compile", "maybe", "auto"),
        ("data.val_fraction", 1.0, "above 0 and below 1"),
        ("tokenizer.vocab_size", 256, "from 257 to 1,048,576"),
    ],
)
def test_impossible_values(key: str, value: object, words: str) -> None:
    message = problem({key: value}).message
    assert f"`{key}`" in message
    assert words in message
    assert "\n" not in message


def test_an_impossible_value_of_one_section() -> None:
    with pytest.raises(ConfigError, match=r"`stop` cannot be '': it must not be empty\."):
        parse_section(SamplingConfig, {"stop": ("",)})


@pytest.mark.parametrize("section", [RunConfig, SamplingConfig])
def test_no_number_is_a_boolean(section: type[BaseModel]) -> None:
    """Python takes True for 1; a config does not."""
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            test_no_number_is_a_boolean(field.annotation)
        elif field.annotation in (int, float, int | None, float | None):
            with pytest.raises(ConfigError, match=f"`{name}` cannot be True: it must be a"):
                parse_section(section, {name: True})


class _Unlike:
    """A value that no field accepts."""


@pytest.mark.parametrize("section", [RunConfig, SamplingConfig])
def test_every_field_names_the_allowed_values(section: type[RunConfig | SamplingConfig]) -> None:
    values = dict.fromkeys(section.model_fields, _Unlike())
    for name, field in RunConfig.model_fields.items() if section is RunConfig else ():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            values[name] = dict.fromkeys(field.annotation.model_fields, _Unlike())
    with pytest.raises(ValidationError) as refusal:
        section.model_validate(values)
    reasons = [reason for _, _, reason in problems(refusal.value, section)]
    assert len(reasons) > 8
    assert all(reason.startswith("must be ") for reason in reasons)


@pytest.mark.parametrize("section", [RunConfig, SamplingConfig])
def test_every_field_is_described(section: type[BaseModel]) -> None:
    """By its docstring: `--help` shows the first sentence."""
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            test_every_field_is_described(field.annotation)
        else:
            assert field.description, name
            assert field.description[0].isupper(), name
            assert field.description.endswith("."), name


def test_all_problems_at_once() -> None:
    error = problem({"optim.lr": 0, "model.dropout": 2, "train.batchsize": 5, "tokenizer.vocab_size": 3})
    for part in ("`optim.lr` cannot be 0", "`model.dropout` cannot be 2", "`tokenizer.vocab_size` cannot be 3"):
        assert part in error.message
    assert "'train.batchsize'" in error.message
    assert error.hint == "Did you mean 'train.batch_size'?"


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("optim.learning_rate", None),
        ("optim.warmup", "optim.warmup_steps"),
        ("model.n_layers", "model.n_layer"),
        ("train.lr", "optim.lr"),
        ("optim.dropout", "model.dropout"),
    ],
)
def test_unknown_keys(key: str, nearest: str | None) -> None:
    error = problem({key: 1})
    assert f"'{key}'" in error.message
    if nearest:
        assert error.hint == f"Did you mean '{nearest}'?"


def test_an_unknown_key_that_resembles_none() -> None:
    hint = problem({"optim.foo": 1}).hint
    assert hint.startswith("Settings of 'optim': ")
    assert all(name in hint for name in OptimConfig.model_fields)


def test_an_unknown_section() -> None:
    error = problem({"trian.sed": 1})
    assert "'trian.sed'" in error.message
    assert error.hint == "Did you mean 'train.seed'?"
    hint = problem({"data.vocab_size": 1}).hint
    assert "'tokenizer.vocab_size'" in hint, "all that have the name"
    assert "'model.vocab_size'" in hint


@pytest.mark.parametrize("section", ["tokenizer", "data", "optim", "train"])
def test_a_section_that_is_no_table(section: str) -> None:
    assert f"'{section}' cannot be 3: it must be a table of settings" in problem({section: 3}).message


@pytest.mark.parametrize("section", ["tokenizer", "data", "model", "optim", "train"])
def test_a_section_of_a_file_that_is_no_table(section: str, tmp_path: Path) -> None:
    """Refused at once: a layer above would silently replace it."""
    for content, shown in ((f"{section} = 3", "3"), (f"[[{section}]]\nx = 1", "[{'x': 1}]")):
        (tmp_path / "a.toml").write_text(content)
        with pytest.raises(ConfigError) as caught:
            load_config_file(tmp_path / "a.toml")
        assert f"{section} = {shown} must be a table of settings" in caught.value.message
    with pytest.raises(ConfigError, match="must be a table of settings"):
        parse_section(RunConfig, {"preset": "nano", section: 3})


@pytest.mark.parametrize(("name", "nearest"), [("smal", "small"), ("gpt-2", "gpt2"), ("tinny", "tiny")])
def test_unknown_presets(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"no preset called '{name}'") as caught:
        preset(name)
    assert caught.value.hint == f"Did you mean '{nearest}'?"


def test_a_preset_like_no_other() -> None:
    with pytest.raises(ConfigError) as caught:
        preset("xyzzy")
    assert caught.value.hint.startswith("Choose one of: nano, tiny, ")


def test_gpt2_has_two_names() -> None:
    assert config(name="gpt2-small") == config(name="gpt2")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2d", 172_800), (" 2H ", 7200), (7, 7)],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("optim.lr=0.001", {"optim": {"lr": 0.001}}),
        ("optim.lr=1e-3", {"optim": {"lr": 0.001}}),
        ("train.deterministic=true", {"train": {"deterministic": True}}),
        ("train.max_time=30m", {"train": {"max_time": "30m"}}),
        ('data.include=["*.py", "*.md"]', {"data": {"include": ["*.py", "*.md"]}}),
        ("tokenizer.kind=a=b", {"tokenizer": {"kind": "a=b"}}),
        (" optim.lr = 1", {"optim": {"lr": 1}}),
    ],
)
def test_settings(setting: str, values: dict[str, Any]) -> None:
    assert parse_setting(setting) == values


@pytest.mark.parametrize("text", ["[" * 5000, "1\nother = 2", "9" * 5000, "{a = " * 5000])
def test_a_value_that_is_no_toml_is_text(text: str) -> None:
    assert parse_setting(f"train.device={text}") == {"train": {"device": text}}


def test_many_problems_are_cut_short() -> None:
    error = problem({f"train.x{number}": 1 for number in range(100)} | {"train.device": 5 * [1]})
    assert "; and 81 more." in error.message
    assert "x" * 200 not in problem({"train." + "x" * 5000: 1}).message
    assert len(problem({"optim.lr": "y" * 5000}).message) < 300


@pytest.mark.parametrize("setting", ["optim.lr", "lr=1", "=1", "preset=nano", "a.b.c=1", "." * 5000 + "=1"])
def test_what_is_no_setting(setting: str) -> None:
    with pytest.raises(ConfigError, match="is not a setting") as caught:
        parse_setting(setting)
    assert caught.value.hint == (
        "Use `preset`." if setting == "preset=nano" else "Write section.key=value, such as optim.lr=0.001."
    )


def test_config_files(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    with pytest.raises(ConfigError, match="There is no config file"):
        load_config_file(path)
    path.write_text("optim = {lr = fast}")
    with pytest.raises(ConfigError, match="not valid TOML") as caught:
        load_config_file(path)
    assert "quotes" in caught.value.hint
    path.write_text("[optim\nlr = 1")
    with pytest.raises(ConfigError, match="not valid TOML: Expected ']'") as caught:
        load_config_file(path)
    assert caught.value.hint == ""
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config_file(path)
    path.write_text("a" * (1 << 20) + "a")
    with pytest.raises(ConfigError, match="too large"):
        load_config_file(path)
    for deep in ("x = " + "[" * 5000, ".".join("a" * 5000) + " = 1", "x = " + "{a = " * 5000):
        path.write_text(deep)
        with pytest.raises(ConfigError, match="too deeply"):
            load_config_file(path)
    path.write_text("x = " + "9" * 5000)
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config_file(path)


def test_a_folder_is_no_config_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder, not a config file") as caught:
        load_config_file(tmp_path)
    assert caught.value.hint == ""
    (tmp_path / "gptcli.toml").touch()
    with pytest.raises(ConfigError, match="is a folder, not a config file") as caught:
        load_config_file(tmp_path)
    assert caught.value.hint == f"Name the file in it: {tmp_path / 'gptcli.toml'}"


def test_merge_takes_the_later_layer_key_by_key() -> None:
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}}, {"d": {"e": 4}}) == {
        "a": {"b": 9, "c": 2},
        "d": {"e": 4},
    }


def test_nest_and_flatten() -> None:
    assert nest({"a.b": 1, "a.c": None, "d": 2}) == {"a": {"b": 1}, "d": 2}
    assert flatten({"a": {"b": 1}, "d": 2}) == {"a.b": 1, "d": 2}


def test_differences() -> None:
    assert differences(config(), config()) == {}
    assert differences(config(), config({"optim.lr": 1.0, "train.epochs": 2})) == {
        "optim.lr": (config().optim.lr, 1.0),
        "train.epochs": (config().train.epochs, 2.0),
    }


def test_what_may_change_is_in_the_tree() -> None:
    assert set(field_names(RunConfig)) >= CHANGEABLE_ON_RESUME


def test_the_recipe_of_fine_tuning() -> None:
    """A lower rate than the preset's, and for GPT-2 small one that people fine-tune it with."""
    assert fine_tuning("gpt2")["optim"]["lr"] == 1.1e-4
    for name in PRESETS:
        made = build_config(name, fine_tuning(name), nest({"train.patience": 9}), vocab_size=65)
        assert made.optim.lr < PRESETS[name]["optim"]["lr"] / 2
        assert made.train.patience == 9, "a later layer wins"
        assert made.optim.weight_decay == build_config(name, vocab_size=65).optim.weight_decay


@pytest.mark.parametrize("name", PRESETS)
def test_the_nearest_preset_of_a_preset_is_itself(name: str) -> None:
    assert nearest_preset(build_config(name, vocab_size=65).model) == name
