"""Help that lists commands in groups, as plain text: no colours and no slow import, wherever it is printed."""

from typing import Any

import typer.core

START, SEARCH, OPERATE = "Start", "Search", "Operate"


class GroupedHelp(typer.core.TyperGroup):
    """Lists commands under their `rich_help_panel`, in the order in which the groups first appear."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order in which they were added."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each group."""
        shown = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        listed = [(name, command) for name, command in shown if command is not None and not command.hidden]
        limit = formatter.width - 6 - max((len(name) for name, _ in listed), default=0)
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in listed:
            panel = getattr(command, "rich_help_panel", None)
            group = panel if isinstance(panel, str) else "Commands"
            groups.setdefault(group, []).append((name, command.get_short_help_str(limit)))
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl(rows)
