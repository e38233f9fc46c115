"""The command line: each command parses, calls the API and shows the result. Only this package imports typer."""
