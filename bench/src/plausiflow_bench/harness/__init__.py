"""Shared by all studies: selections, result rows, a store of models, a resumable runner, tables and pages."""
