"""The command line: each command parses, calls one plain function and shows the result. typer lives here alone."""
