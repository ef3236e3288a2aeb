"""A question in, verbatim words out: what was said, where, and how fresh the answer is."""
