"""``python -m plausiflow``: the command line, where its script is not on the path."""

from plausiflow.cli import app

if __name__ == "__main__":
    app(prog_name="plausiflow")
