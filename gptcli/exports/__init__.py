"""A trained model as files that other tools open: GGUF, an Ollama folder, a Hugging Face folder."""
