"""The Spark job: the only package that imports pyspark and delta."""
