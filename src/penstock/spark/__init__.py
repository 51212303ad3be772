"""The data pipeline on Spark: the queue's jobs and events as tables, and jobs from DataFrames."""
