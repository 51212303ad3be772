"""When a schedule fires: expressions, zones, intervals, and what was missed."""
