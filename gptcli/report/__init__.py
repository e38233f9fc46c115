"""What `inspect`, `eval` and `bench` say, as plain data: frozen dataclasses whose field names are those of the JSON."""
