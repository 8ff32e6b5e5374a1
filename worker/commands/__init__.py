"""One command of the command line a file: `register(subparsers)` adds its arguments and names what runs."""
