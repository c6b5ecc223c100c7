"""What stands around a search: judges that have no part in it."""

from plausiflow.search.judges import Judges, true_density

__all__ = ["Judges", "true_density"]
