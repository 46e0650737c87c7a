"""Long failure tests of the whole pipeline, on a real nsqd: ``make hard NAME=spark-chaos``."""
