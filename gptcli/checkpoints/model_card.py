"""The model card of a run folder: what it is, what it was trained on, how, and with what result."""

from __future__ import annotations

import math

from gptcli.checkpoints.checkpoint import Progress
from gptcli.config import RunConfig
from gptcli.text.dataset import Dataset


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
        perplexity = math.exp(min(progress.best_val_loss, 700.0))  # exp overflows a float above 709
        rows["validation loss"] = f"{progress.best_val_loss:.4f} nats per token (perplexity {perplexity:.2f})"
        rows["best step"] = f"{progress.best_step:,}"
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [gpt2, gptcli]
---

# {name}

A GPT-2 language model, trained with gptcli.

| | |
|---|---|
{table}

Generate text with `gptcli sample` and the path of this folder, or open it in Python:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH")
tokenizer = AutoTokenizer.from_pretrained("PATH")
```
{_alphabet_warning(dataset)}
The complete recipe is in `gptcli.toml`: `gptcli train -c gptcli.toml DATA` repeats the run.
"""


def _alphabet_warning(dataset: Dataset) -> str:
    if dataset.tokenizer.kind != "char":
        return ""
    return """
The model knows only the characters of its text. gptcli refuses others in a prompt by name; other tools drop them
silently.
"""
