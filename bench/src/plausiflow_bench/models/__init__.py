"""``plausiflow benchmark models``: models without gradients, such as boosted trees and forests."""
