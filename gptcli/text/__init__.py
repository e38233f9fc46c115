"""Tokenizers, corpus readers and dataset folders: text in, token ids out."""
