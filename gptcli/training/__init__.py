"""The training loop, a generator of events, and what it stands on: batches, optimizer, schedule, evaluation."""
