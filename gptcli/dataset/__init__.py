"""Sources of text, their documents, and dataset folders of token shards."""
