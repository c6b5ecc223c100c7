"""``python -m plausiflow_bench.speed``: the study of speed without the command line of plausiflow."""

from plausiflow_bench.speed.study import main

main()
