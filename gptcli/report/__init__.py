"""What `inspect` says, as plain data: frozen dataclasses whose field names are those of its JSON."""
