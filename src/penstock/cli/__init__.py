"""The command line: a module or a sub-package for each group of commands.

A command is a coroutine function of a `CommandContext`, which has the settings, the output, the app and the
store. `registration.command` gives it the options of `options.GLOBAL`, and adds the default of each option to
its help. Commands print through `output.Output` only: text for people, JSON with --json. Errors become one
line and an exit code in `main.py`. Begin with `commands.py`, which lists all commands.
"""
