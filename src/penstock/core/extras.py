"""How people get the packages that only some of them need."""


def install_command(extra: str) -> str:
    """A command that installs an extra. Penstock is installed from a checkout, as no package index has it."""
    return f"`pip install '.[{extra}]'` in a checkout of Penstock"
