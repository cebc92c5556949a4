"""`python -m splinefm.distribute`: one process of a fit or an update, started by torchrun."""

from splinefm.cli.worker import main

if __name__ == "__main__":
    main()
