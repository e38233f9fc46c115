"""gptcli: train GPT language models on your own text, and generate text from them."""

__version__ = "0.1.0"
