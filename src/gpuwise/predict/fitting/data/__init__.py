"""Readers of measurements that others have published, one module a data set; the folder is given, never assumed."""
