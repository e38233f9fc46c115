"""Other tools' formats: Hugging Face folders and GGUF."""
