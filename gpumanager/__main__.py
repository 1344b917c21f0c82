"""`python -m gpumanager`: the same as the `gpumanager` command."""

from gpumanager.cli import main

if __name__ == "__main__":
    main()
