"""An app of the same name without tasks."""

from penstock import Penstock

app = Penstock("memory://")
