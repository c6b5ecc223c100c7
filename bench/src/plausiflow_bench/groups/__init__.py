"""Few actions for many rows, compared with other methods; the audit; many rows."""
