"""A new Python worker: what it needs until a capture's batches are decoded, and what it takes again, told as JSON.

Usage: python first_batch.py CAPTURE
"""

import time

began = time.perf_counter()

# What a worker of Spark's has before it meets the package.
import numpy  # noqa: E402, F401
import pyarrow  # noqa: E402
import pyspark.sql.types  # noqa: E402, F401

# Arrow imports pandas with the first array that it makes of anything, and in a worker something is always the first.
pyarrow.array([0])

others = time.perf_counter()

import walreplay.spark.workers.write  # noqa: E402

own = time.perf_counter()

# What plans is the driver's.
import walreplay.changes  # noqa: E402, I001
import json  # noqa: E402
import sys  # noqa: E402


def decode() -> float:
    """Decode the capture; give the seconds."""
    start = time.perf_counter()
    rows = sum(batch.data.num_rows for batch in walreplay.read_changes(sys.argv[1]))
    assert rows
    return time.perf_counter() - start


if __name__ == "__main__":
    told = {"imports of others": others - began, "imports": own - others, "first batch": decode()}
    told |= {"imports and first batch": told["imports"] + told["first batch"], "second batch": decode()}
    print(json.dumps({"package": walreplay.__file__, "seconds": told}))
