"""What is compiled: functions of arrays and integers that walk messages, place rows and convert values.

They keep to the subset of Python that numba takes, check no bounds and raise nothing: each gives a number that its
caller reads.  How they are compiled is for `walreplay.decode.compile`.
"""
