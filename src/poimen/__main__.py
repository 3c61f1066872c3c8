"""`python -m poimen`: the command line."""

from poimen.cli.main import main

if __name__ == "__main__":
    main()
