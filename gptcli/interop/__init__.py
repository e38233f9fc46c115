"""Other tools' formats: Hugging Face folders."""
