"""GPT, its blocks, its loss and its key-value cache. Knows nothing of text, training or files."""
