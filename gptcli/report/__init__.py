"""The reports of `inspect` as plain data: frozen dataclasses whose field names are the keys of the JSON."""
