"""The pipeline on Spark: tables in and out of the stores, and the audit."""
