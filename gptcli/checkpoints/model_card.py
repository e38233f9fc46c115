"""The model card of a run folder: what it is, what it was trained on, how, and with what result."""

from __future__ import annotations

from collections.abc import Mapping

from gptcli.checkpoints.checkpoint import Progress
from gptcli.config import ModelConfig, RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.interop.hub import is_address, split_address
from gptcli.interop.huggingface import OWN, architecture_of, no_counterpart
from gptcli.model.loss import loss_in_words
from gptcli.tokenizer.tokenizer import Tokenizer

_IN_PYTHON = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH")
tokenizer = AutoTokenizer.from_pretrained("PATH")
```
"""


def front_matter(model: ModelConfig, base: str = "") -> str:
    """What Hugging Face reads of a card; `base` is the repository of the model that training started from."""
    kind = architecture_of(model).model_type
    known = kind != OWN.model_type
    lines = [
        f"library_name: {'transformers' if known else 'gptcli'}",
        "pipeline_tag: text-generation",
        f"tags: [{kind}, gptcli]" if known else "tags: [gptcli]",
        *([f"base_model: {base}"] if base else []),
    ]
    return "\n".join(["---", *lines, "---", ""])


def in_words(model: ModelConfig) -> str:
    """GPT-2, 4 layers, 4 heads, 128 wide."""
    experts = f", {model.n_expert} experts" if model.n_expert else ""
    return f"{title(model)}, {model.n_layer} layers, {model.n_head} heads, {model.n_embd} wide{experts}"


def title(model: ModelConfig) -> str:
    """What people call this kind of model."""
    return architecture_of(model).title


def how_to_open(model: ModelConfig) -> str:
    """How another program opens the folder, or that none does."""
    return _IN_PYTHON if not (alone := no_counterpart(model)) else f"{alone}\n"


def model_card(name: str, config: RunConfig, dataset: Dataset, progress: Progress) -> str:
    """Markdown with the front matter that Hugging Face reads."""
    model, optim, train = config.model, config.optim, config.train
    rows = {
        "model": in_words(model),
        "context": f"{model.block_size:,} tokens",
        "tokenizer": f"{dataset.tokenizer.kind}, {dataset.tokenizer.vocab_size:,} ids",
        "data": f"{dataset.name} ({dataset.train.bytes + dataset.val.bytes:,} bytes)",
        "held out": f"{dataset.val.tokens:,} of {dataset.train.tokens + dataset.val.tokens:,} tokens",
        "batch": f"{train.batch_size} sequences",
        "learning rate": f"{optim.lr:g}, {optim.schedule}",
        "steps": f"{progress.step:,} of {train.max_steps or 0:,}",
    }
    if progress.best_val_loss is not None:
        rows["validation loss"] = loss_in_words(progress.best_val_loss)
        rows["best step"] = f"{progress.best_step:,}"
    if train.init_from is not None:
        rows["started from"] = f"{train.init_from} (sha256 of its weights {(train.init_sha256 or '')[:16]})"
    table = markdown_rows(rows)
    base = split_address(train.init_from)[0] if train.init_from and is_address(train.init_from) else ""
    return f"""{front_matter(model, base)}
# {name}

A {title(model)} language model, trained with gptcli.

| | |
|---|---|
{table}

Generate text with `gptcli sample` and the path of this folder.

{how_to_open(model)}{alphabet_warning(dataset.tokenizer)}
The complete recipe is in `gptcli.toml`: `gptcli train -c gptcli.toml DATA` repeats the run.
"""


def markdown_rows(rows: Mapping[str, str]) -> str:
    """The rows of a table with two columns."""
    return "\n".join(f"| {key} | {value} |" for key, value in rows.items())


def alphabet_warning(tokenizer: Tokenizer) -> str:
    """What a reader should know of a character model; "" for others."""
    if tokenizer.kind != "char":
        return ""
    return """
The model knows only the characters of its text. gptcli refuses others in a prompt by name; other tools drop them
silently.
"""
