"""Long trouble for the whole pipeline, on a real nsqd: ``make spark-chaos``."""
