"""A run: what was asked, what was decided, the session of training, its logs and saves."""
