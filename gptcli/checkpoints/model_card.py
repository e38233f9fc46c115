"""The model card of a run folder: the model, its data, the recipe and the result."""

from __future__ import annotations

from collections.abc import Mapping

from gptcli.checkpoints.checkpoint import Progress
from gptcli.config import ModelConfig, RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.errors import counted
from gptcli.interop.hub import is_address, split_address
from gptcli.interop.huggingface import OWN, architecture_of, compatibility_note
from gptcli.model.loss import loss_in_words
from gptcli.tokenizer.tokenizer import Tokenizer

_IN_PYTHON = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH")
tokenizer = AutoTokenizer.from_pretrained("PATH")
```"""
_ALPHABET = """
The model knows only the characters of its text. gptcli refuses others in a prompt by name; other tools drop them
silently.
"""


def model_card(name: str, config: RunConfig, dataset: Dataset, progress: Progress) -> str:
    """The model card of a run, as markdown."""
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
    base = split_address(train.init_from)[0] if train.init_from and is_address(train.init_from) else ""
    usage = "Generate text with `gptcli sample` and the path of this folder."
    page = card_page(name, model, dataset.tokenizer, rows, origin="trained with gptcli.", usage=usage, base=base)
    return f"{page}\nThe complete recipe is in `gptcli.toml`: `gptcli train -c gptcli.toml DATA` repeats the run.\n"


def card_page(
    name: str,
    model: ModelConfig,
    tokenizer: Tokenizer,
    rows: Mapping[str, str],
    *,
    origin: str,
    usage: str = "",
    base: str = "",
) -> str:
    """A model card with a table of `rows`. `base` is the repository whose weights the training started from."""
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    how_to_open = "\n\n".join(filter(None, [usage, compatibility_note(model) or _IN_PYTHON]))
    return f"""{_front_matter(model, base)}
# {name}

A {architecture_of(model).title} language model, {origin}

| | |
|---|---|
{table}

{how_to_open}
{_ALPHABET if tokenizer.kind == "char" else ""}"""


def in_words(model: ModelConfig) -> str:
    """The model in words: `GPT-2, 4 layers, 4 heads, 128 wide`."""
    experts = f", {counted(model.n_expert, 'expert')}" if model.n_expert else ""
    layers, heads = counted(model.n_layer, "layer"), counted(model.n_head, "head")
    return f"{architecture_of(model).title}, {layers}, {heads}, {model.n_embd} wide{experts}"


def _front_matter(model: ModelConfig, base: str) -> str:
    """The metadata at the top of the card that Hugging Face reads."""
    kind = architecture_of(model).model_type
    known = kind != OWN.model_type
    lines = [
        f"library_name: {'transformers' if known else 'gptcli'}",
        "pipeline_tag: text-generation",
        f"tags: [{kind}, gptcli]" if known else "tags: [gptcli]",
        *([f"base_model: {base}"] if base else []),
    ]
    return "\n".join(["---", *lines, "---", ""])
