"""Reading an exposition by Prometheus's own parser."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

Labels = Mapping[str, str]


class Parsed:
    """The samples of an exposition."""

    def __init__(self, text: bytes) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text.decode())}
        self.samples = [each for family in self.families.values() for each in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the values under these labels, whatever their others are."""
        found = [
            each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items()
        ]
        assert found, f"no {name} with {labels}"
        return sum(found)

    def labels(self, name: str, label: str) -> set[str]:
        """The values of a label of all samples of the name."""
        return {each.labels[label] for each in self.samples if each.name == name}
