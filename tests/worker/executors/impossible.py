"""An app whose task wants to read what is not there."""

from penstock import Penstock, Permissions

app = Penstock("memory://")


@app.queue("impossible").task(permissions=Permissions(read=["/nowhere/to/be/found"]))
def read() -> None: ...
