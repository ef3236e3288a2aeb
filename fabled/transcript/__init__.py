"""Bytes of a transcript in, values out. Pure: nothing here touches a file, a clock or a thread."""
