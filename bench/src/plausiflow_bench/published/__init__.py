"""The published runs: their files, their flow, and the study that repeats PPCEF on their models."""
