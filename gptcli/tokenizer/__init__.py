"""Character and BPE tokenizers: text to ids and back. Knows no configuration and no dataset."""
