"""The model card of an exported Hugging Face folder."""

from __future__ import annotations

from gptcli.checkpoints.model_card import (
    alphabet_warning,
    front_matter,
    how_to_open,
    in_words,
    markdown_rows,
    title,
)
from gptcli.generation.loaded_model import LoadedModel
from gptcli.model.loss import loss_in_words


def export_card(name: str, folder: LoadedModel) -> str:
    """Markdown with the front matter that Hugging Face reads."""
    config, tokenizer = folder.model.config, folder.tokenizer
    rows = {
        "model": in_words(config),
        "parameters": f"{sum(parameter.numel() for parameter in folder.model.parameters()):,}",
        "context": f"{config.block_size:,} tokens",
        "tokenizer": f"{tokenizer.kind}, {tokenizer.vocab_size:,} ids",
    }
    if folder.step is not None:
        rows["training steps"] = f"{folder.step:,}"
    if folder.val_loss is not None:
        rows["validation loss"] = loss_in_words(folder.val_loss)
    return f"""{front_matter(config)}
# {name}

A {title(config)} language model, exported by gptcli. It continues text; it does not chat.

| | |
|---|---|
{markdown_rows(rows)}

{how_to_open(config)}{alphabet_warning(tokenizer)}"""
