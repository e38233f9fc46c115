"""Text sources and dataset folders: from files to token shards, and reading them."""
