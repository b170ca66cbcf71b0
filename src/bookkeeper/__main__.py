"""`python -m bookkeeper` is the `bookkeeper` command."""

from .cli.main import main

if __name__ == "__main__":
    main()
