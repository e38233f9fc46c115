"""`python -m gptcli` and the `gptcli` command."""

from gptcli.cli.app import app


def main() -> None:
    """Run the command line and exit with its code."""
    app()


if __name__ == "__main__":
    main()
