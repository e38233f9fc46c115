"""The model card of a run folder: what it is, what it was trained on, how, and with what result."""

from __future__ import annotations

from collections.abc import Mapping

from gptcli.checkpoints.checkpoint import Progress
from gptcli.config import RunConfig
from gptcli.interop.hub import is_address, split_address
from gptcli.model.loss import perplexity
from gptcli.text.dataset import Dataset
from gptcli.text.tokenizer import Tokenizer

FRONT_MATTER = """---
library_name: transformers
pipeline_tag: text-generation
tags: [gpt2, gptcli]
---
"""
"""What Hugging Face reads of a card."""

IN_PYTHON = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH")
tokenizer = AutoTokenizer.from_pretrained("PATH")
```
"""


def model_card(name: str, config: RunConfig, dataset: Dataset, progress: Progress) -> str:
    """Markdown with the front matter that Hugging Face reads."""
    model, optim, train = config.model, config.optim, config.train
    rows = {
        "model": f"GPT-2, {model.n_layer} layers, {model.n_head} heads, {model.n_embd} wide",
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
    return f"""{_front_matter(train.init_from)}
# {name}

A GPT-2 language model, trained with gptcli.

| | |
|---|---|
{table}

Generate text with `gptcli sample` and the path of this folder, or open it in Python:

{IN_PYTHON}{alphabet_warning(dataset.tokenizer)}
The complete recipe is in `gptcli.toml`: `gptcli train -c gptcli.toml DATA` repeats the run.
"""


def _front_matter(init_from: str | None) -> str:
    """The front matter; it names the model on the Hub that training started from, if it did."""
    if init_from is None or not is_address(init_from):
        return FRONT_MATTER
    return FRONT_MATTER.removesuffix("---\n") + f"base_model: {split_address(init_from)[0]}\n---\n"


def loss_in_words(loss: float) -> str:
    """A loss in nats per token, with its perplexity."""
    return f"{loss:.4f} nats per token (perplexity {perplexity(loss):.2f})"


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
