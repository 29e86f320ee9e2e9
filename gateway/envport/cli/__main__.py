"""`python -m envport.cli` is `envport`."""

from envport.cli.application import main

if __name__ == "__main__":
    main()
