"""`python -m envport.cli` runs `envport`."""

from envport.cli.application import main

if __name__ == "__main__":
    main()
