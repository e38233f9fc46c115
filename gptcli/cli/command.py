"""The class of every command: an option with one value may be given only once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperOption


class Command(TyperCommand):
    """A command that refuses `-t 0.2 -t 1.5`, of which typer would silently use the last; exits with 2."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as typer does, after a check for repeated options."""
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        for option, count in Counter(given).items():
            if isinstance(option, TyperOption) and count > 1 and not (option.multiple or option.is_flag):
                ctx.fail(f"{' / '.join(option.opts)} was given {count} times: give it once.")
        return super().parse_args(ctx, args)
