"""Parts of the producer of partitioned topics."""
