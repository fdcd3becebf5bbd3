"""Load tests for OpenAI-compatible servers: speed, and whether a crowd changes the answers.

The package speaks HTTP and nothing else: it imports neither ``batchserve`` nor ``scheduler``, so that
what it says about them is worth as much as what it says about any other server.
"""
