"""`python -m batchserve` is the command `batchserve`."""

from batchserve.cli import main

main()
