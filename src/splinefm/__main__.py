"""`python -m splinefm`: the command line."""

from splinefm.cli.main import main

if __name__ == "__main__":
    main()
