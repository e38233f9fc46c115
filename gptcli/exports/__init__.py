"""Trained models as files of other tools: GGUF, an Ollama folder, a Hugging Face folder."""
