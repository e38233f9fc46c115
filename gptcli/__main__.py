"""`python -m gptcli` and the `gptcli` command."""

from gptcli.signals import end_now, end_on_signals


def main() -> None:
    """Run the command line and exit with its code."""
    end_on_signals()  # before anything else is imported
    from gptcli.cli.threads import limit_spinning

    limit_spinning()
    from gptcli.cli.app import app
    from gptcli.cli.boundary import replace_closed_outputs
    from gptcli.cli.launching import introduce, report_exit

    replace_closed_outputs()
    introduce()
    try:
        app()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
        reported = report_exit(code)
        if code:
            end_now(reported)  # threads of a library may still be at work
        raise


if __name__ == "__main__":
    main()
