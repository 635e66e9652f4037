"""placeholder until merged"""


def nearest_neighbours(a, b, c, d):
    return 0.0


def quick_probe(a, b, c, d):
    return 0.0
