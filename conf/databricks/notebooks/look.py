# Databricks notebook source
# MAGIC %md
# MAGIC # Apply captures, and read tables that belong together
# MAGIC Needs walreplay: `%pip install` the wheel, or choose an environment that has it.

# COMMAND ----------

import walreplay

captures = "/Volumes/main/archive/captures"
target = "main"

# COMMAND ----------

# MAGIC %md
# MAGIC What is new is applied; a second call finds nothing new.

# COMMAND ----------

report = walreplay.apply(spark, captures, target)
print(report.status, report.transactions, "transactions,", report.changes, "row changes")
for table in report.tables:
    print(table.name, table.action, table.inserted, table.updated, table.deleted, "version", table.version)

# COMMAND ----------

# MAGIC %md
# MAGIC Each table has its own commit, so while a run is at work one may be ahead of another. A consistent cut reads all
# MAGIC at the versions that belong to one run.

# COMMAND ----------

status = walreplay.status(spark, target)
cut = walreplay.versions_at(spark, target, status.runs[-1].run)
for table in cut.tables:
    print(table.sql)
